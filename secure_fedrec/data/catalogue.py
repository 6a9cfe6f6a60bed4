"""What is known about each data set before it is read: files, digests, sizes, terms, citation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from secure_fedrec.data.movielens import load_ml_1m, load_ml_100k, load_ml_latest_small
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.errors import ConfigError

__all__ = ["DATASETS", "EXAMPLE_SETS", "SYNTHETIC", "DataFile", "DatasetInfo"]

SYNTHETIC: Final = "synthetic"
"""Name of the data set that is generated."""

_HARPER_KONSTAN: Final = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5, 4, Article 19. "
    "https://doi.org/10.1145/2827872"
)
_NO_REDISTRIBUTION: Final = (
    "GroupLens usage licence: research use with acknowledgement, no commercial use and no "
    "redistribution without separate permission."
)
_SAME_CONDITIONS: Final = (
    "GroupLens usage licence: research use with acknowledgement, no commercial use, "
    "redistribution under the same conditions."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """One file of a data set.

    Args:
        name: file name inside the data set's folder.
        sha256: hexadecimal digest of the sound file, or None where it is not known.
        published: whether the origin's archive holds it; other files are derived copies that a
            user may have instead.
    """

    name: str
    sha256: str | None = None
    published: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """What is known about a data set before it is read.

    Args:
        name: how commands and configurations call it; also the name of its folder.
        title: how papers call it.
        read: loads its rating table from its folder; None where there is no folder, or what it
            holds is no rating table.
        origin: https address of the publisher's zip archive, or None.
        files: the files that matter here.
        marker: a file that tells the data set's own folder from a folder of data sets; None
            exactly where there are no files.
        clients: expected number of clients, or None where any is right.
        items: expected number of items, or None.
        ratings: expected number of ratings, or None.
        licence: the terms in one sentence.
        citation: what to cite.
    """

    name: str
    title: str
    read: Callable[[Path], RatingTable] | None = None
    origin: str | None = None
    files: tuple[DataFile, ...] = ()
    marker: str | None = None
    clients: int | None = None
    items: int | None = None
    ratings: int | None = None
    licence: str
    citation: str

    def __post_init__(self) -> None:
        if self.origin is not None and not self.origin.startswith("https://"):
            raise ConfigError("data.origin", self.origin, "must be an https address")
        if (self.marker is None) != (not self.files) or (self.read and not self.files):
            raise ConfigError("data.name", self.name, "files, marker and reader belong together")


_ML_100K: Final = DatasetInfo(
    name="ml-100k",
    title="MovieLens 100K",
    read=load_ml_100k,
    origin="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    files=(
        DataFile(
            name="u.data",
            sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        ),
        DataFile(
            name="u.user",
            sha256="f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c",
        ),
        DataFile(
            name="u.item",
            sha256="553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
        ),
        DataFile(
            name="README",
            sha256="4883b8cf340ed0059971b33f56ad3adc88a40792108ebca3d24aafc4c82e8b52",
        ),
    ),
    marker="u.data",
    clients=943,
    items=1682,
    ratings=100_000,
    licence=_NO_REDISTRIBUTION,
    citation=_HARPER_KONSTAN,
)

_ML_1M: Final = DatasetInfo(
    name="ml-1m",
    title="MovieLens 1M",
    read=load_ml_1m,
    origin="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    files=(
        # No independent digest of the published ratings is known; their number is checked.
        DataFile(name="ratings.dat"),
        DataFile(
            name="users.dat",
            sha256="1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3",
        ),
        DataFile(
            name="movies.dat",
            sha256="0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        ),
        DataFile(
            name="README",
            sha256="416e0b06d0ce900fb5a31f50941f05074f65b855fda9c4f4f1f8da2c56593439",
        ),
        DataFile(
            name="ratings_notimestamp.dat.gz",
            sha256="d772187dc0388f89b245b84aa9ddfd743cf120187044425fdd7b74d4faa31e8a",
            published=False,
        ),
        DataFile(
            name="latest_rating_per_user.dat",
            sha256="5d7b802f6041e6b11ff318bb3c8c065c60a75dde1bc24dc1a04e6c52d8581174",
            published=False,
        ),
    ),
    marker="users.dat",
    clients=6040,
    items=3952,
    ratings=1_000_209,
    licence=_NO_REDISTRIBUTION,
    citation=_HARPER_KONSTAN,
)

_ML_LATEST_SMALL: Final = DatasetInfo(
    name="ml-latest-small",
    title="MovieLens latest-small (9/2018)",
    read=load_ml_latest_small,
    origin="https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
    files=(
        DataFile(
            name="ratings.csv",
            sha256="aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646",
        ),
        DataFile(
            name="movies.csv",
            sha256="5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07",
        ),
        DataFile(
            name="README.txt",
            sha256="63d22ac138e80fae37021797ed8e1b9424b5239dc576a137422adf783ae3f404",
        ),
    ),
    marker="movies.csv",
    clients=610,
    items=9742,
    ratings=100_836,
    licence=_SAME_CONDITIONS,
    citation=_HARPER_KONSTAN,
)

_ASSIST_2009: Final = DatasetInfo(
    name="assist2009",
    title="ASSISTments 2009-2010, as prepared by EduCDM",
    files=(
        DataFile(
            name="train.csv",
            sha256="500c02d98bf545a7b25281af927672255387f0ae73da731bfdfc1b1d3e5adca1",
        ),
        DataFile(
            name="valid.csv",
            sha256="2eac01d51b6a047d118b6c0c87d6136f4b189ada419aae1a3d5f422b46b652a0",
        ),
        DataFile(
            name="test.csv",
            sha256="6ed76a81e193786debc40a9cf74faaa7cb99c8ad897cc9940f881a672d982642",
        ),
        DataFile(
            name="item.csv",
            sha256="31bd61b22b66a8284760bdf58778bb05e0ddc2f70165d4116f556b61d93626be",
        ),
        DataFile(
            name="hpfl-sample/train_0.json",
            sha256="9afa3b4c693e2a16c71eb53f5d1506c93cc0282e634143269f6d6a533c54aa3a",
        ),
        DataFile(
            name="hpfl-sample/train_1.json",
            sha256="cc5448dbee8c0717ec3a37f9c6cedf9681896af167a6aef716bd959a99241944",
        ),
        DataFile(
            name="hpfl-sample/test_0.json",
            sha256="bfed96a96bfb43883acbfcb9559f42f40d86e4d116aa886490e64b9be4f45f6e",
        ),
        DataFile(
            name="hpfl-sample/test_1.json",
            sha256="6ea50d7994887f4f9ee2000ceb58cf266157b3c245f2f75df51c0a4023ce3dbd",
        ),
    ),
    marker="item.csv",
    licence=(
        "ASSISTments terms of use: research use, no attempt to identify students, no passing on to "
        "anyone else."
    ),
    citation=(
        "Mingyu Feng, Neil Heffernan and Kenneth Koedinger. 2009. Addressing the assessment "
        "challenge with an online system that tutors as it assesses. User Modeling and "
        "User-Adapted Interaction 19, 243-266. https://doi.org/10.1007/s11257-009-9063-7"
    ),
)

_NEWSGROUPS: Final = DatasetInfo(
    name="20newsgroups",
    title="20 Newsgroups (bydate), one JSON line per post",
    files=(
        DataFile(
            name="posts.jsonl.gz",
            sha256="7297b3dd2c4fdccf970b68d9e8f86ecd0f972ae876c982b54125bdb00cf72bf8",
            published=False,
        ),
    ),
    marker="posts.jsonl.gz",
    licence="No explicit licence known: public Usenet posts of 1993, widely used for research.",
    citation=(
        "Ken Lang. 1995. NewsWeeder: Learning to Filter Netnews. Proceedings of the 12th "
        "International Conference on Machine Learning, 331-339. "
        "https://doi.org/10.1016/B978-1-55860-377-6.50048-7"
    ),
)

_SYNTHETIC_INFO: Final = DatasetInfo(
    name=SYNTHETIC,
    title="Synthetic long-tailed ratings",
    licence="Made up on the spot; no terms apply.",
    citation="none",
)

DATASETS: Final[Mapping[str, DatasetInfo]] = MappingProxyType(
    {info.name: info for info in (_ML_100K, _ML_1M, _ML_LATEST_SMALL, _SYNTHETIC_INFO)}
)
"""All known rating tables by name."""

EXAMPLE_SETS: Final[Mapping[str, DatasetInfo]] = MappingProxyType(
    {info.name: info for info in (_ASSIST_2009, _NEWSGROUPS)}
)
"""Known data sets that are no rating tables, by name; each has a loader of its own."""
