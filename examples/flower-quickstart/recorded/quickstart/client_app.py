"""A client: trains on its own digits, and says how well it recognises them."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import Net, accuracy, load_data
from quickstart.task import train as train_model

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that was sent."""
    model, data = received(message, context)
    loss = train_model(model, data, float(context.run_config["learning-rate"]))
    metrics = MetricRecord({"num-examples": len(data[1]), "train_loss": loss})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Try the model that was sent."""
    model, data = received(message, context)
    metrics = MetricRecord({"num-examples": len(data[1]), "accuracy": accuracy(model, data)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def received(message: Message, context: Context) -> tuple[Net, tuple]:
    """The model of a message, and this client's data."""
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    part, parts = context.node_config["partition-id"], context.node_config["num-partitions"]
    return model, load_data(int(part), int(parts))
