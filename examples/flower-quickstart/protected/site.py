"""A client's own process: answers its SuperNode's messages with the app that is installed here."""

import sys

from quickstart.client_app import app

from secure_fedrec.engines.flower.tasks import serve_app

serve_app(app, sys.argv[1])
