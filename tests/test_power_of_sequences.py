"""Every wrong loop as an engine, every wrong law of a request as a sampler: refuted and named."""

import pytest

from specref.decode import sequence_law
from specref.dist import tv
from specref.faults import FAULTS
from specref.gate import requests as of_laws
from specref.gate import sequences
from specref.gate.answers import Caller
from specref.gate.generated import wanted
from specref.gate.loading import wrap
from specref.gate.models import requests
from specref.gate.report import MEASURED, Report
from specref.gate.seeds import one_thread
from specref.gate.session import Session
from specref.subjects.engines import faults, of_fault, of_rule

LOOPS = [name for name, fault in FAULTS.items() if fault.kind == "loop"]
LAWS = [name for name, fault in FAULTS.items() if fault.kind == "law"]
IN_SEQUENCES = ["grammar_lags"]
"""Laws that only a text shows, as it grows: `law` is asked with one state of a grammar."""


def session_of(subject):
    return Session(wrap(subject, "it"), None, Report("it", "it", "", "quick", 0), lambda text: None)


def telling(session, fault):
    """Return the first request on which a wrong loop shows."""
    drafting = 2 if fault.rule.shape == "chain" else (2, 2)
    for request in requests(session.subject, False):
        p, q, stops, context = request.model.asked(request.max_tokens, request.eos)
        wrong = sequence_law(fault.rule, p, q, drafting, stops, context, loop=fault.loop)
        if tv(wrong, wanted(request)) > 1e-5:
            return request
    raise AssertionError(f"{fault.name} shows nowhere")


@pytest.mark.parametrize("name", LOOPS)
def test_every_wrong_loop_is_refuted_and_named(name):
    session = session_of(of_fault(FAULTS[name]))
    with one_thread():
        (found,) = sequences.judge(session, [telling(session, FAULTS[name])])
    assert (found.claim, found.depth, found.verdict) == ("sequences", MEASURED, "fail")
    assert name in found.nearest_fault["matches"]


@pytest.mark.parametrize("name", [name for name in LAWS if name not in IN_SEQUENCES])
def test_every_wrong_law_is_refuted_and_named(name):
    session = session_of(of_fault(FAULTS[name]))
    found = of_laws.judge_laws(session, Caller(session.subject))[0]
    assert (found.claim, found.depth, found.verdict) == ("parameters", MEASURED, "fail")
    assert name in found.nearest_fault["matches"]


@pytest.mark.parametrize("name", IN_SEQUENCES)
def test_a_grammar_that_lags_shows_in_texts(name):
    session = session_of(of_fault(FAULTS[name]))
    asked = [r for r in requests(session.subject, False) if "allowed" in r.parameters]
    (found,) = sequences.judge(session, asked)
    assert found.verdict == "fail"
    assert name in found.nearest_fault["matches"]


@pytest.mark.parametrize("name", ["token", "match", "target_only"])
def test_honest_loops_pass_where_wrong_ones_fail(name):
    session = session_of(of_rule(name))
    asked = [r for r in requests(session.subject, False) if r.name in ("EOS 2", "two tokens")]
    assert {f.verdict for f in sequences.judge(session, asked)} == {"pass"}


def test_every_such_fault_has_a_name_on_the_command_line():
    assert set(dir(faults)) == {*LOOPS, *LAWS}
    assert faults.limit_overrun.name == "limit_overrun"
    with pytest.raises(AttributeError):
        _ = faults.coin_reused
