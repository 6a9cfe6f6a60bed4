"""One run of FURL's experiment: ``python -m benchmarks.furl_study --config NAME --out FILE``.

Writes ``FILE`` (JSON: settings, learning curve, final metrics) and, beside it with the suffix
``.npz``, the trained user embeddings and shared parameters. Runs on one thread; start one process
per configuration and seed. ``secure-fedrec reproduce furl --results FOLDER`` reads whatever lies in
the folder.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS
from secure_fedrec.algorithms.local_settings import OPTIMIZERS, LocalTrainingConfig
from secure_fedrec.data.newsgroups import NewsgroupsConfig
from secure_fedrec.data.stickers import StickersConfig
from secure_fedrec.errors import ConfigError, DataError, EncodingError
from secure_fedrec.studies.furl.results import TASKS, StudyTexts, write_study
from secure_fedrec.studies.furl.study import FURLStudyConfig, run_furl_study

__all__ = ["main"]

_BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study and write what it found.

    Args:
        arguments: the command line without the program; ``sys.argv`` by default.

    Returns:
        0, or 2 if a setting or the data are wrong, or training diverges.
    """
    parsed = _parser().parse_args(arguments)
    try:
        config, texts = _study(parsed), _texts(parsed)
        data = texts.load(parsed.data_dir)
        result = run_furl_study(config, data, seed=parsed.seed, report=_progress)
        write_study(parsed.out, texts=texts, data=data, config=config, result=result)
    except (ConfigError, DataError, EncodingError) as problem:
        print(f"furl_study: {problem}", file=sys.stderr)
        return _BAD_USAGE
    return 0


def _study(parsed: argparse.Namespace) -> FURLStudyConfig:
    training = LocalTrainingConfig(
        optimizer=parsed.optimizer,
        learning_rate=parsed.lr,
        private_learning_rate=parsed.private_lr,
        epochs=parsed.local_epochs,
        batch_size=parsed.batch_size or None,
        momentum=parsed.momentum,
        proximal=parsed.proximal,
        gradient_clip=parsed.clip,
        keep_state=parsed.keep_state,
    )
    return FURLStudyConfig(
        configuration=parsed.config,
        epochs=parsed.epochs,
        clients_per_round=parsed.clients_per_round,
        user_dim=parsed.user_dim,
        character_dim=parsed.character_dim,
        hidden=parsed.hidden,
        mlp=parsed.mlp,
        pooling=parsed.pooling,
        dropout=parsed.dropout,
        user_init=parsed.user_init,
        training=training,
        decay=parsed.decay,
        evaluate_every=parsed.evaluate_every,
    )


def _texts(parsed: argparse.Namespace) -> StudyTexts:
    return StudyTexts(
        task=parsed.task,
        seed=parsed.seed if parsed.data_seed is None else parsed.data_seed,
        length=parsed.length,
        users=parsed.users,
    )


def _progress(point: Mapping[str, float]) -> None:
    shown = "  ".join(f"{name} {value:.4g}" for name, value in point.items())
    print(shown, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.furl_study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    study, training = FURLStudyConfig(configuration="personalized-fl"), LocalTrainingConfig()
    add = parser.add_argument
    add("--config", required=True, choices=CONFIGURATIONS, help="which configuration")
    add("--out", type=Path, required=True, help="JSON file to write; arrays go to its .npz")
    add("--task", choices=TASKS, default=StudyTexts().task)
    add("--seed", type=int, default=1, help="of training")
    add("--data-seed", type=int, help="of the split (default: --seed)")
    add("--data-dir", type=Path, help="folder of the data sets (default: SECURE_FEDREC_DATA)")
    add("--length", type=int, default=NewsgroupsConfig().length, help="characters of a post")
    add("--users", type=int, default=StickersConfig().users, help="of the made-up stickers")
    for name in ("epochs", "clients_per_round", "evaluate_every"):
        add(_flag(name), type=int, default=getattr(study, name))
    for name in ("user_dim", "character_dim", "hidden", "mlp"):
        add(_flag(name), type=int, default=getattr(study, name))
    add("--pooling", default=study.pooling)
    add("--dropout", type=float, default=study.dropout)
    add("--user-init", default=study.user_init)
    add("--decay", type=float, default=study.decay, help="of learning rates, per epoch")
    add("--optimizer", choices=OPTIMIZERS, default=training.optimizer)
    add("--lr", type=float, default=training.learning_rate)
    add("--private-lr", type=float, help="of user embeddings (default: --lr)")
    add("--momentum", type=float, default=training.momentum)
    add("--local-epochs", type=int, default=training.epochs)
    add("--batch-size", type=int, default=0, help="0 takes all of a client's texts")
    add("--proximal", type=float, default=training.proximal)
    add("--clip", type=float, help="largest norm of a gradient")
    add("--keep-state", action="store_true", help="moments stay on the device")
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    sys.exit(main())
