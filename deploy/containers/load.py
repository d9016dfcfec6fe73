"""The client of a container: asks for known answers, then sends the same requests as a load, until its input ends.

It runs in a container too. Prints a line when the load begins, and at the end how each request ended, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading

from reliability.known_answers import Load, known_answers

URL = "http://127.0.0.1:3000"
CLIENTS, DIFFERENT = 12, 24


def main() -> None:
    """Returns when standard input has ended and the last request has, too."""
    load = Load(URL, known_answers(URL, DIFFERENT), CLIENTS)
    sending = threading.Thread(target=load.run)
    sending.start()
    sys.stdout.write("sending\n")
    sys.stdout.flush()
    sys.stdin.read()
    load.stop()
    sending.join()
    json.dump([[one.kind, one.name, one.sent_s, one.ended_s] for one in load.outcomes], sys.stdout)


if __name__ == "__main__":
    main()
