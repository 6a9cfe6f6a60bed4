"""A site's process that answers Flower's own FedAvg as well, for ``benchmarks.flower``."""

import sys

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from audits.deploy.site import main


def trained(message: Message, context: Context) -> Message:
    """What a client that trains in no time sends back: the arrays that it was sent."""
    del context
    arrays = message.content["arrays"]
    if not isinstance(arrays, ArrayRecord):
        raise TypeError("FedAvg sends arrays")
    weight = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": weight}), reply_to=message)


if __name__ == "__main__":
    sys.exit(main(beside={"train": trained}))
