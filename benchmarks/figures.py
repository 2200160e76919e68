"""Published costs beside ours, by simulation: prints the table of
docs/measurements/figures.md (about six minutes on 2 cores).
"""

import argparse
import json
import sys

import dualplan as dp
from dualplan import policies

BOUNDED = "four-queue 38/25/25/38"


def cases():
    """(network, policy, published or computed elsewhere, model, policy object, steps)."""
    net = dp.load("four-queue", buffers=None)
    yield "four-queue, unbounded", "LONGEST", "45.04; 44.9", net, net.policy("longer"), 200_000_000
    yield "four-queue, unbounded", "LBFS", "144.1; 146", net, net.policy("lbfs"), 400_000_000
    for discipline, cost in (
        ("preemptive", "14.32 ± .04"),
        ("nonpreemptive", "15.749; 15.67 ± .10"),
    ):
        net = dp.load("six-class", discipline=discipline)
        yield f"six-class, {discipline}", "LBFS", cost, net, net.policy("lbfs"), 200_000_000
    net = dp.load("four-queue", buffers=9)
    mixing = {
        (0.9, 0.9): 16.2950,
        (0.9, 0.7): 17.3926,
        (0.8, 0.8): 15.1535,
        (0.7, 0.9): 13.6525,
        (0.7, 0.7): 14.3266,
    }
    for p, cost in mixing.items():
        yield (
            "four-queue, buffers 9",
            f"soft longer {p}",
            str(cost),
            net,
            policies.soft_longer(net, p),
            40_000_000,
        )
    for name, cost in (("lbfs", "10.3586"), ("longer", "15.5370")):
        yield "four-queue, buffers 9", name.upper(), cost, net, net.policy(name), 40_000_000
    for options, costs in (
        (
            {"dynamics": "bernoulli", "full": "lose", "phantom": True},
            ("46.13 ± .08", "51.53 ± .03"),
        ),
        ({"dynamics": "bernoulli", "full": "lose"}, ("26.98", "23.72")),
        ({"full": "block"}, ("≈ 40.15", "≈ 25.0")),
        ({"full": "lose"}, ("≈ 34.8", "≈ 24.8")),
    ):
        net = dp.load("four-queue", **options)
        label = ", ".join(k if v is True else str(v) for k, v in options.items())
        for name, cost in zip(("longer", "lbfs"), costs, strict=True):
            yield f"{BOUNDED}, {label}", name.upper(), cost, net, net.policy(name), 40_000_000
    net = dp.load("eight-queue")
    eight = {
        (0.8, 0.5, 0.5): "21.78 ± .16",
        (0.5, 0.8, 0.5): "22.47 ± .08",
        (0.5, 0.5, 0.8): "22.98 ± .12",
    }
    for p, cost in eight.items():
        yield "eight-queue", f"soft longer {p}", cost, net, policies.soft_longer(net, p), 40_000_000
    model = dp.load("lost-sales")
    yield "lost sales", "myopic", "5.06", model, model.policy("myopic"), 2_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for network, name, published, model, policy, steps in cases():
        result = dp.evaluate(model, policy, steps=steps, seed=arguments.seed)
        lost = result.measures.get("lost fraction")
        rows.append(
            {"network": network, "policy": name, "published": published, **result.to_json()}
        )
        if not arguments.json:
            loss = "" if lost is None else f"{lost.value:.1%}"
            print(
                f"| {network} | {name} | {published} | {result.cost:.5g} ± {result.half_width:.2g} "
                f"| {loss} | {result.status} | {result.seconds:.0f} |",
                flush=True,
            )
    if arguments.json:
        json.dump({"rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
