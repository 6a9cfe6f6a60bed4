"""The server host's log of a round, and of its traffic."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from typing_extensions import override

from secure_fedrec.engines.distributed.coordinator import DistributedReport
from secure_fedrec.engines.distributed.mean_coordinator import MeanReport
from secure_fedrec.engines.distributed.round_log import (
    SHOWN_DIGITS,
    log,
    price_fields,
    priced,
    with_fields,
)
from secure_fedrec.engines.distributed.sites_channel import Transport
from secure_fedrec.engines.distributed.training_plan import TrainingPlan


class Traffic(Transport):
    """A carrier that counts what it carries.

    Args:
        carrier: the transport that carries it.
        after: called after every exchange, with the bytes that went out and came in.

    Attributes:
        sent, received: bytes since they were last set to 0.
    """

    def __init__(
        self, carrier: Transport, after: Callable[[int, int], None] = lambda out, back: None
    ) -> None:
        self._carrier = carrier
        self._after = after
        self.sent = self.received = 0

    @override
    def addresses(self) -> Sequence[int]:
        return self._carrier.addresses()

    @override
    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        out, back = sum(map(len, messages.values())), 0
        self.sent += out
        try:
            for address, data in self._carrier.exchange(label, messages, timeout):
                back += len(data)
                self.received += len(data)
                yield address, data
        finally:
            self._after(out, back)


def log_summed(report: DistributedReport, plan: TrainingPlan, traffic: Traffic) -> None:
    """The lines of a round at the server, once it is over.

    Args:
        report: report of the round.
        plan: the computation.
        traffic: bytes and messages carried in it.
    """
    price = price_fields(plan, report.round)
    log.info(
        "round %d: statement %s, %d of %d clients in the sum, %d bytes out and %d in, %.2f s%s",
        *(report.round, report.statement[:SHOWN_DIGITS], len(report.clients), report.invited),
        *(traffic.sent, traffic.received, report.seconds, priced(price)),
        extra=with_fields(
            event="round",
            round=report.round,
            attempts=report.attempts,
            statement=report.statement,
            participants=len(report.clients),
            invited=report.invited,
            exchanges=report.exchanges,
            bytes_out=traffic.sent,
            bytes_in=traffic.received,
            seconds=round(report.seconds, 3),
            **price,
        ),
    )
    _log_left_out(report.round, report.left_out)


def log_mean(report: MeanReport) -> None:
    """The lines of a round of means at the server, once it is over."""
    log.info(
        "round %d: statement %s, a mean of %d of %d clients, %.2f s",
        *(report.round, report.statement[:SHOWN_DIGITS], len(report.clients), report.invited),
        report.seconds,
        extra=with_fields(
            event="round",
            round=report.round,
            statement=report.statement,
            participants=len(report.clients),
            invited=report.invited,
            exchanges=report.exchanges,
            seconds=round(report.seconds, 3),
        ),
    )
    _log_left_out(report.round, report.dropped)


def _log_left_out(round_: int, reasons: Mapping[int, str]) -> None:
    for client, why in sorted(reasons.items()):
        told = with_fields(event="left-out", round=round_, client=client, why=why)
        log.warning("round %d: client %d is left out: %s", round_, client, why, extra=told)
