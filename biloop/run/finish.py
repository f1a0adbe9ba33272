"""The end of a run: a last look at x, an explanation of a failure, and what is handed back."""

from functools import partial

from jaxtyping import PyTree

from biloop.loops.results import Status
from biloop.methods import Residuals
from biloop.run.certify import plateau
from biloop.run.course import Course
from biloop.run.diagnosis import explain
from biloop.run.doubts import doubted
from biloop.run.ends import last_look
from biloop.run.engine import Engine
from biloop.run.outcome import Run, make_run
from biloop.run.sampling import doubtful, exact_value, resting, sampled_remarks
from biloop.run.step import Row
from biloop.run.uphill import uphill


def _again(engine: Engine) -> PyTree:
    """The y of two more calls of the method at the same x: what goes to and fro is back by then."""
    with engine.aside():
        return engine.evaluate(times=2)[0].method.y


def _at_the_end(engine: Engine) -> Row:
    """What is at the last x; it goes back from where the h of a loop led that was cut short."""
    spent = engine.ended() is Status.BUDGET_SPENT and engine.shared.outer.finds_its_size
    if spent and engine.records[0].last("result") == Status.UNCONVERGED:
        engine.go_back()
    return last_look(engine)


def finished(course: Course, x0: PyTree, status: Status, label: str) -> Run:
    """Explain a failure, or look at the last x: what f is there, and whether y can be trusted."""
    engine, ends, watcher = course.engine, course.ends, course.watcher
    feed, growth = course.feed, course.growth
    problem, method, _ = ends.race.concluded()
    record, steps, cause = engine.records[0], engine.steps_of(), ends.cause
    end = engine.end()._replace(status=status)
    value, claimed = end.value, record.residuals()
    sampled, y = method.sampled is not None or not growth.is_whole, None
    seen, word = feed.at_the_end()
    if sampled:
        y = resting(method, seen, engine.state.x, engine.state.method)
        value = exact_value(seen, engine.state.x, y)
    elif engine.went_back or (ends.went_back_with_y and not status.failed):
        value = engine.go_back()
    elif end.wants_evaluation and not ends.race.by_momentum:
        row = _at_the_end(engine)
        status, value = end.judged(row)
        claimed = Residuals(float(row.inner_residual), float(row.linear_residual))
    if not (status.failed or status is Status.CONVERGED):
        value, told = ends.race.best(value)
        cause = " ".join(filter(None, (cause, told)))
    state = engine.state
    y = state.method.y if y is None else y
    if not status.failed:
        watcher.end(engine, y)
    best = watcher.best(engine, y, value)
    if record.rows and status is not Status.CONVERGED:
        told = uphill(method, engine.shared.outer, state.x, state.method.y, record)
        claims = told and status in (Status.COMPLETED, Status.SETTLED)
        status, cause = (Status.UNCONVERGED if claims else status), told or cause
    if status.failed and not (cause or feed.trouble):
        status, cause = explain(status, problem, method, state.x, state.method.y, record)
    elif not (status.failed or cause or sampled) and record.rows:
        again = partial(_again, engine)
        status, cause = doubted(status, problem, method, state.x, y, record, claimed, again)
        cause = cause or plateau(engine, x0, value)
    elif sampled and status is Status.UNBOUNDED:  # which too steep batches look like
        status, why = doubtful(status, problem, method, state.x, y, record)
        cause = why or cause
    elif not (status.failed or cause) and record.rows:
        status, cause = doubtful(status, problem, method, state.x, y, record)
    return make_run(
        state.x,
        state.method,
        value,
        status,
        steps,
        record,
        remarks=(
            cause,
            feed.trouble or (watcher.remark if status is Status.STOPPED else ""),
            word or growth.remark,
            sampled_remarks(method, problem),
            course.saved.trouble,
        ),
        label=label,
        y=y,
        compile_seconds=engine.compile_seconds,
        best=best,
        watched=watcher.columns,
    )
