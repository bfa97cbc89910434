"""The console as an ASGI application: its addresses, and the pages of errors.

Views are ordinary functions, run by threads: a slow broker delays one page. A change is a POST with a valid token; the
table CHANGES is the only way to one.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from leadline.admin.errors import Failure, client_error_text, client_errors
from leadline.console.page import BadRequest, Console, Form, NotInCluster, form_of
from leadline.console.protection import Protection
from leadline.console.views import (
    brokers,
    groups,
    overview,
    partition,
    pipeline,
    reassignments,
    records,
    topics,
    transactions,
)

View = Callable[[Console, Request], Response]
Change = Callable[[Console, Request, Form], Response]
Endpoint = Callable[[Request], Awaitable[Response]]

VIEWS: dict[str, View] = {
    "/": overview.overview,
    "/topics": topics.topic_list,
    "/topics/{topic}": topics.topic,
    "/topics/{topic}/records": records.records,
    "/topics/{topic}/{partition:int}": partition.partition,
    "/groups": groups.group_list,
    "/groups/group": groups.group,
    "/groups/reset": groups.reset_plan,
    "/groups/undo": groups.undo_plan,
    "/transactions": transactions.transaction_list,
    "/brokers": brokers.broker_list,
    "/brokers/{broker:int}": brokers.broker,
    "/reassignments": reassignments.reassignment_list,
    "/reassignments/plan": reassignments.plan_page,
    "/pipeline": pipeline.pipeline,
}
CHANGES: dict[str, Change] = {
    "/topics": topics.create,
    "/topics/{topic}/settings": topics.alter_topic,
    "/topics/{topic}/partitions": topics.grow,
    "/topics/{topic}/delete": topics.delete,
    "/topics/{topic}/records": records.produce,
    "/groups/reset": groups.reset,
    "/groups/undo": groups.undo_reset,
    "/groups/delete": groups.delete,
    "/transactions/abort": transactions.abort,
    "/brokers/{broker:int}/settings": brokers.alter_broker,
    "/brokers/elect": brokers.elect,
    "/reassignments": reassignments.execute,
    "/reassignments/cancel": reassignments.cancel,
    "/reassignments/unthrottle": reassignments.unthrottle,
}


def application(console: Console) -> Protection:
    routes: list[BaseRoute] = [Route(path, _view(console, view), methods=["GET"]) for path, view in VIEWS.items()]
    routes += [Route(path, _change(console, change), methods=["POST"]) for path, change in CHANGES.items()]
    routes.append(Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")))

    def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        text = "There is no such page." if status == 404 else "This address does not do that."
        return console.page(request, "error.html", "Not here", status, problem=text, advice="")

    return Protection(Starlette(routes=routes, exception_handlers={HTTPException: missing}), console.rules)


def _view(console: Console, view: View) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(_answer, console, request, lambda: view(console, request))

    return endpoint


def _change(console: Console, change: Change) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        form = await form_of(request)
        if not request.state.has_valid_token(form.get("token", "")):
            text = "This form is not valid any more: the console was started again, or the form is not its own."
            return console.page(request, "error.html", "Not changed", 403, problem=text, advice="Go back and reload.")
        return await run_in_threadpool(_answer, console, request, lambda: change(console, request, form))

    return endpoint


def _answer(console: Console, request: Request, work: Callable[[], Response]) -> Response:
    """The page, or a page about the error: 404 and 400 for the request, 502 for the cluster."""
    try:
        return work()
    except NotInCluster as error:
        return _problem(console, request, str(error), 404, "It may have been deleted.")
    except BadRequest as error:
        return _problem(console, request, str(error), 400, "Go back, and change what you typed.")
    except Failure as error:
        advice = f"Check that the brokers run: leadline topics list --bootstrap-server {console.servers}"
        return _problem(console, request, str(error), 502, advice if "reach" in str(error) else "")
    except client_errors() as error:
        return _problem(console, request, client_error_text(error.args[0]), 502, "")


def _problem(console: Console, request: Request, problem: str, status: int, advice: str) -> Response:
    title = "Not changed" if request.method == "POST" else "Not shown"
    return console.page(request, "error.html", title, status, problem=problem, advice=advice)
