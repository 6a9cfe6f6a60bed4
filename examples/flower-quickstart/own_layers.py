"""Layers of a Flower client's own: those that a mean's terms do not share, from round to round."""

from flwr.app import ArrayRecord, Context, Message
from torch import nn

from secure_fedrec.protection.means import ProtectedMean


# --- in the place of load_state_dict, and after training ---
def load_received(model: nn.Module, message: Message, context: Context) -> None:
    """Load the model that was sent, with the layers that this client keeps."""
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    if "own" in context.state:
        model.load_state_dict(context.state["own"].to_torch_state_dict(), strict=False)


def keep_own(model: nn.Module, terms: ProtectedMean, context: Context) -> None:
    """Keep what is not shared for the next round."""
    state = ArrayRecord(model.state_dict())
    home = terms.select({name: array.numpy() for name, array in state.items()}).home
    context.state["own"] = ArrayRecord({name: state[name] for name in home})


# --- end ---
