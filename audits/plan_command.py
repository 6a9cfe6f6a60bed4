"""``plan --clients N ...``: parameters and costs of a deployment of masked sums."""

import argparse
import dataclasses

from audits import planning
from audits.planning import Deployment
from audits.terminal import print_json


def plan(arguments: argparse.Namespace) -> int:
    """Print the plans for a deployment, with their costs."""
    given = {
        field.name: getattr(arguments, field.name)
        for field in dataclasses.fields(Deployment)
        if hasattr(arguments, field.name)
    }
    deployment = Deployment(**given)
    found = planning.plan(deployment)
    if arguments.json:
        planned = [each.as_json() for each in found]
        told = {"deployment": dataclasses.asdict(deployment), "plans": planned}
        print_json(told)
        return 0
    print(
        f"{deployment.clients:,} clients, {deployment.drawn:,} in a round, of which "
        f"{deployment.dropout:g} may drop out; {deployment.corrupt:g} of all may be corrupt; "
        f"vectors of {deployment.dim:,} words of {deployment.bits} bits"
    )
    for each in found:
        print("", *each.lines(), sep="\n")
    return 0
