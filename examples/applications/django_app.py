"""Outlast in a Django project of one file: `python django_app.py runserver`, beside `outlast worker refunds.py`."""

import os
import sys
from functools import cache

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from refunds import refund

import outlast
from outlast.errors import NotFound


@cache  # at the first request, because a server may fork its processes before
def client() -> outlast.SyncClient:
    return outlast.connect_sync(os.environ.get("OUTLAST_STORE", "sqlite:refunds.db"))


@require_POST
def start(request: HttpRequest, order: str) -> JsonResponse:
    run = client().start(refund, order=order, cents=int(request.GET["cents"]))
    return JsonResponse({"run": run.id}, status=202)


@require_GET
def read(request: HttpRequest, run: str) -> JsonResponse:
    try:
        return JsonResponse({"status": client().get(refund, run).status().shown})
    except NotFound as error:
        raise Http404 from error


urlpatterns = [path("refunds/<str:order>", start), path("runs/<str:run>", read)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DEBUG=False)
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
