"""Published and independently computed costs, by simulation; the sources are in docs/measurements/figures.md."""

import pytest

import dualplan as dp
from bank import load
from dualplan import policies, primal

pytestmark = pytest.mark.slow
CUBIC = 3


def simulated(model, policy, steps, **options):
    """With a cubic control that is fitted to the policy.

    So the cost is known as well as by fifty times as many steps without one.
    """
    basis = primal.monomials(model, CUBIC)
    control = primal.policy_values(model, policy, basis, samples=20_000, every=50, seed=2)
    result = dp.evaluate(model, policy, steps=steps, seed=1, control=control, **options)
    assert result.status is dp.Status.COMPLETED
    return result


def test_unbounded_four_queue():
    """LONGEST 44.9 ± 1, LBFS within 5% of 146 (independent simulation; de Farias & Van Roy print
    45.04 and 144.1).
    """
    net = dp.load("four-queue", buffers=None)
    longer = simulated(net, net.policy("longer"), 1_000_000, confidence=0.999)
    assert longer.cost == pytest.approx(44.9, abs=1.0)
    assert longer.half_width < 0.5
    lbfs = simulated(net, net.policy("lbfs"), 2_000_000, confidence=0.999)
    assert lbfs.cost == pytest.approx(146, rel=0.05)
    assert lbfs.half_width < 0.03 * lbfs.cost


@pytest.mark.parametrize(("discipline", "cost"), [("preemptive", 14.32), ("nonpreemptive", 15.67)])
def test_six_class_lbfs(discipline, cost):
    net = dp.load("six-class", discipline=discipline)
    found = simulated(net, net.policy("lbfs"), 2_000_000, confidence=0.999)
    assert found.cost == pytest.approx(cost, abs=0.15)
    assert found.half_width < 0.15


@pytest.mark.parametrize(
    ("p", "cost"),
    [
        ((0.9, 0.9), 16.2950),
        ((0.9, 0.7), 17.3926),
        ((0.8, 0.8), 15.1535),
        ((0.7, 0.9), 13.6525),
        ((0.7, 0.7), 14.3266),
    ],
)
def test_base_policies_of_the_mixing_table(p, cost):
    """Banijamali et al.

    2019, four queues with buffers 9: the printed cost lies in a 99.9% interval of ± 1%.
    """
    net = dp.load("four-queue", buffers=9)
    result = simulated(net, policies.soft_longer(net, p), 1_000_000, confidence=0.999)
    assert result.lower <= cost <= result.upper
    assert result.half_width < 0.01 * cost


@pytest.mark.parametrize(("name", "cost"), [("longer", 46.13), ("lbfs", 51.53)])
def test_the_papers_text_to_the_letter(name, cost):
    net = dp.load("four-queue", dynamics="bernoulli", full="lose", phantom=True)
    found = simulated(net, net.policy(name), 1_000_000, confidence=0.999)
    assert found.cost == pytest.approx(cost, abs=0.6)
    assert found.half_width < 0.6


def test_lost_sales_myopic():
    """Zipkin 2008, Poisson(5), lead time 4, penalty 4: Myopic 5.06."""
    model = load("lost-sales")
    result = dp.evaluate(model, model.policy("myopic"), steps=1_000_000)
    assert result.cost == pytest.approx(5.06, abs=0.02)


def test_criss_cross_priorities_bracket_the_optimum():
    """No policy may beat the published optimum .671 (light, imbalanced).

    Serving the exit class first comes close.
    """
    net = dp.load("criss-cross")
    result = dp.evaluate(net, policies.priority(net, ["2", "1"]), steps=4_000_000)
    assert result.upper > 0.671 - 0.002
    assert result.cost == pytest.approx(0.68, abs=0.02)
