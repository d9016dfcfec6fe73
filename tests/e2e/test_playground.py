"""The playground in a browser, over a real server: what a visitor sees, clicks and types."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import patient
import pytest
from chromium import Page, chromium, executable
from on_a_socket import on_a_socket

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.storage.api_keys import hash_of
from reliability.document_files import encrypted_pdf, report

pytestmark = pytest.mark.skipif(executable() is None, reason="Chromium is not installed")

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
PAYLOAD = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"
REQUESTS = "performance.getEntriesByType('resource').filter(({name}) => name.includes('/v1/extract')).length"
BY_PAGE = """(() => {
  const pages = {};
  let page;
  for (const one of document.querySelector('.content').children) {
    if (one.matches('h2')) pages[(page = one.textContent)] = ["", []];
    if (!one.matches('.block')) continue;
    pages[page][0] += [...one.childNodes].map((node) => node.matches?.('.tag') ? '' : node.textContent).join('');
    pages[page][1].push(...[...one.querySelectorAll('mark')].map((mark) => mark.textContent));
  }
  return pages;
})()"""
"""Text and marks of each page of a document."""
MARKS = "[...document.querySelectorAll('#document mark')].map((mark) => mark.textContent)"


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(tab, server) -> Page:
    """The playground with the example of business relations, extracted."""
    open_example(tab, server)
    return tab


def open_example(tab: Page, server: str, width: int = 1440) -> None:
    """Open the playground, and the example of business relations in it."""
    tab.open(f"{server}/playground", width=width)
    tab.wait("document.querySelectorAll('#presets button').length === 5 && document.querySelectorAll('mark').length")
    tab.click("#presets button:nth-child(3)")
    wait_for_marks(tab, "Microsoft")
    tab.wait("document.querySelectorAll('.arcs g').length === 3")


def put(page: Page, selector: str, value: str | float, event: str = "input") -> None:
    """Give a field a value, as a visitor does who pastes, drags or chooses."""
    page.evaluate(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(value)}; "
        f"field.dispatchEvent(new Event({json.dumps(event)})); }})()"
    )


def enter(page: Page, text: str) -> None:
    """Replace the text."""
    put(page, "#text", text)


def paste(page: Page, text: str) -> None:
    """Paste a text where the cursor is."""
    page.evaluate(
        f"(() => {{ const data = new DataTransfer(); data.setData('text', {json.dumps(text)}); document.activeElement"
        ".dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, cancelable: true})); })()"
    )


def drop(page: Page, file: Path) -> None:
    """Drop a file on the page, as a visitor does."""
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.command("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)


def wait_for_marks(page: Page, *texts: str) -> None:
    page.wait(f"{json.dumps(texts)}.every((text) => {MARKS}.includes(text))")


def test_an_example_is_shown_in_the_text_in_tables_and_as_a_graph(page):
    assert {"Bill Gates", "Microsoft", "1975", "Redmond"} <= set(page.evaluate(MARKS))
    assert page.evaluate("document.querySelector('#document mark + .tag').innerText").startswith("person 1.00")
    arcs = "[...document.querySelectorAll('.arcs text')].map((text) => text.textContent)"
    assert set(page.wait(f"{arcs}.length > 2 && {arcs}")) == {"founded", "founded in", "headquartered in"}
    assert "1 window" in page.evaluate("document.getElementById('status').textContent")
    assert page.evaluate("document.querySelectorAll('.pane.entities tbody tr[data-place]').length") >= 4
    page.click("#tab-relations")
    assert page.wait("document.querySelectorAll('.pane.relations tbody tr[data-place]').length") == 3
    page.click("#tab-graph")
    assert page.wait("document.querySelectorAll('.canvas canvas').length")
    assert page.evaluate("document.querySelector('.canvas').ariaLabel") == "Graph of 4 entities and 3 relations"
    assert page.messages == []


EXAMPLES = {
    "People and places": "Marie Curie, Warsaw, 1867, University of Paris, 1903, Nobel Prize in Physics, Pierre Curie, "
    "Henri Becquerel; Marie Curie born in Warsaw, Marie Curie studied at University of Paris",
    "Personal data": "Laura Bennett, 14 March 1986, 27 Maple Street, Portland, +1 503 555 0147, "
    "laura.bennett@example.com, 4111 1111 1111 1111; ",
    "Business relations": "Bill Gates, Microsoft, 1975, Redmond, Satya Nadella; Bill Gates founded Microsoft, "
    "Microsoft founded in 1975, Microsoft headquartered in Redmond",
    "Medical": "type 2 diabetes, hypertension, chest pain, shortness of breath, 500 mg, metformin, pneumonia, "
    "Ibuprofen, nausea; ",
    "Legal": "3 June 2021, Supreme Court, Northwind Energy, 4.5 million euros, Acme Logistics Inc., Anna de Vries, "
    "Civil Code, Northwind Energy, Thomas Keller, Court of Appeal, Amsterdam, 30 June 2021; ",
}
"""Everything in the examples that a reader would mark, in order; then the relations."""


def test_the_model_finds_everything_in_each_example(page, server):
    presets = page.evaluate("import('/playground/presets.js').then(({PRESETS}) => PRESETS)")
    found = {}
    for preset in presets:
        body = {name: preset[name] for name in ("text", "labels", "relations")}
        answer = patient.post(f"{server}/v1/extract", json=body | {"relations": body["relations"] or None})
        entities, relations = answer.json()["entities"], answer.json()["relations"]
        related = [f"{one['head']['text']} {one['relation']} {one['tail']['text']}" for one in relations]
        found[preset["title"]] = f"{', '.join(one['text'] for one in entities)}; {', '.join(related)}"
        assert {one["label"] for one in entities} == set(preset["labels"])
    assert found == EXAMPLES


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_hides_a_name_of_a_relation(tab, server, width):
    open_example(tab, server, width)
    crossed = """[...document.querySelectorAll('.arcs text')].map((text) => {
      const { x, y, width, height } = text.getBBox();
      const isIn = (point) => point.x > x && point.x < x + width && point.y > y + 2 && point.y < y + height - 2;
      const points = [...document.querySelectorAll('.arcs .line, .arcs text')].flatMap((other) => {
        if (other.parentElement === text.parentElement) return [];
        if (other.getPointAtLength)
          return Array.from({ length: other.getTotalLength() }, (_, at) => other.getPointAtLength(at));
        const box = other.getBBox();
        return [{ x: box.x, y: box.y + 6 }, { x: box.x + box.width, y: box.y + 6 }];
      });
      return points.filter(isIn).length;
    })"""
    counts = tab.evaluate(crossed)
    assert (len(counts) >= 3, set(counts)) == (True, {0})
    tab.click("#tab-graph")
    tab.wait("document.querySelector('.canvas canvas') !== null")
    hidden = "import('/playground/graph_view.js').then(({hiddenNames}) => hiddenNames(document.querySelector('.canvas')"
    assert tab.evaluate(f"{hidden}._cyreg.cy))") == 0


def test_a_phone_shows_whole_labels_and_scores_in_the_tables(tab, server):
    open_example(tab, server, 390)
    for view, count in (("entities", 5), ("relations", 3)):
        tab.click(f"#tab-{view}")
        lines = f".pane.{view} tbody tr[data-place]"
        tab.wait(f"document.querySelectorAll('{lines}').length === {count}")
        cut = f"[...document.querySelectorAll('{lines} td:not(.wide)')].filter((cell) => cell.offsetParent && "
        cut += "cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"
        assert set(tab.evaluate(cut)) <= {"headquartered in"}
        pane = f"document.querySelector('.pane.{view}')"
        assert tab.evaluate(f"{pane}.scrollWidth - {pane}.clientWidth") == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_sliders_are_in_line_beside_their_names(tab, server, width):
    open_example(tab, server, width)
    starts = "[...document.querySelectorAll('.slider input')].map((input) => input.getBoundingClientRect().left)"
    entity, relation = tab.evaluate(starts)
    assert entity == relation
    rows = "[...document.querySelectorAll('.filter')].map((row) => row.querySelectorAll('.legend button').length)"
    assert tab.evaluate(rows) == [4, 3]
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate("document.querySelector('nav a').href").endswith("/docs")


def test_it_extracts_as_one_types_and_labels_can_be_pasted(page):
    page.click("#labels .heading button")
    enter(page, "Ada Lovelace lived in London 😀 and Charles Babbage too.")
    page.wait("document.getElementById('status').textContent === 'Add a label'")
    page.click("#labels-input")
    paste(page, "person\n- city")
    wait_for_marks(page, "Ada Lovelace", "London", "Charles Babbage")  # offsets count code points
    page.type("date")
    page.press("Enter", 13)
    page.press("Backspace", 8)
    names = "[...document.querySelectorAll('#labels .chip span')].map((name) => name.textContent)"
    assert page.evaluate(names) == ["person", "city"]
    assert page.messages == []


def test_nothing_in_a_text_or_a_label_is_executed(page):
    page.click("#labels-input")
    page.type(f"{PAYLOAD}")
    page.press("Enter", 13)
    enter(page, f"{PAYLOAD} Ada Lovelace lived in London. {PAYLOAD}")
    wait_for_marks(page, "London")
    for tab in ("relations", "code", "entities"):
        page.click(f"#tab-{tab}")
    assert page.evaluate(f"document.querySelector('#labels .chip:last-child').textContent.startsWith({PAYLOAD!r})")
    assert PAYLOAD in page.evaluate("document.querySelector('.block').textContent")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("document.title") == "Playground · gliner-bento"
    with pytest.raises(RuntimeError, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<p>markup</p>'")


def test_a_slider_and_the_legend_filter_without_asking_again(page):
    asked, shown = page.evaluate(REQUESTS), len(page.evaluate(MARKS))
    put(page, ".slider input", 1)
    page.wait(f"{MARKS}.length < {shown}")
    put(page, ".slider input", 0.4)
    page.wait(f"{MARKS}.length >= {shown}")
    page.click(".legend button")  # person
    page.wait(f"!{MARKS}.includes('Bill Gates')")
    assert page.evaluate("document.querySelector('.legend button').ariaPressed") == "false"
    assert page.evaluate(REQUESTS) == asked
    put(page, ".slider input", 0.1)
    page.wait(f"{REQUESTS} > {asked}")  # below what was asked for


def saved_link(page) -> str:
    """The page's address, once it has been the same for 600 ms; the page changes it 400 ms after an input."""
    watch = "if (location.hash === last) { clearInterval(timer); resolve(location.href); } last = location.hash;"
    watch = f"let last; const timer = setInterval(() => {{ {watch} }}, 600);"
    return page.wait(f"new Promise((resolve) => {{ {watch} }})")


def test_a_label_and_a_relation_may_have_a_threshold_of_their_own(page):
    page.evaluate("document.querySelectorAll('details.about').forEach((details) => (details.open = true))")
    put(page, "#labels .row:nth-child(1) [type=number]", "1", "change")  # no person is that certain
    page.wait(f"!{MARKS}.includes('Bill Gates') && {MARKS}.includes('Microsoft')")
    page.click("#tab-relations")
    page.wait("document.querySelectorAll('.pane.relations tbody tr[data-place]').length === 2")
    put(page, "#labels .row:nth-child(1) [type=number]", "0.2", "change")
    put(page, ".slider input", 1)  # of the labels without one
    page.wait(f"{MARKS}.includes('Bill Gates') && !{MARKS}.includes('Microsoft')")
    put(page, ".slider input", 0.5)
    put(page, "#relations .row:nth-child(1) [type=number]", "1", "change")
    page.wait("document.querySelector('.pane.relations tbody').textContent.includes('founded in')")
    page.wait("document.querySelectorAll('.pane.relations tbody tr[data-place]').length === 2")
    page.click("#tab-code")
    page.click(".choices button:nth-child(3)")
    code = json.loads(page.evaluate("document.querySelector('pre').textContent"))
    assert code["labels"]["person"] == {"threshold": 0.2}
    assert code["labels"]["organization"] == "organization"
    assert code["relations"]["founded"] == {"threshold": 1}
    link = saved_link(page)
    page.open(link)
    wait_for_marks(page, "Bill Gates")
    assert page.evaluate("document.querySelector('#labels [type=number]').value") == "0.2"
    assert page.messages == []


def test_what_is_pointed_at_is_highlighted_in_every_view(page):
    page.click("#tab-relations")
    page.wait("document.querySelector('.pane.relations tr[data-place]') !== null")
    page.hover("#document mark")
    lit = "document.querySelectorAll('mark.on').length && document.querySelectorAll('.arcs .on').length"
    assert page.wait(f"{lit} && document.querySelectorAll('.pane.relations tr.on').length") == 1
    page.hover(".pane.relations tbody tr[data-place]:nth-child(3) td")
    page.wait("document.querySelectorAll('mark.on').length === 2")


def test_the_keyboard_reaches_entities_and_tabs(page):
    page.evaluate("document.getElementById('document').focus()")
    page.press("ArrowRight", 39)
    page.wait("document.getElementById('focused').textContent.startsWith('Bill Gates: person, score')")
    page.evaluate("document.getElementById('tab-entities').focus()")
    page.press("ArrowLeft", 37)
    assert page.evaluate("document.activeElement.id") == "tab-code"
    assert page.evaluate("document.querySelector('.pane.code').hidden") is False


def test_the_code_does_what_the_page_did(page, server):
    page.click("#tab-code")
    code = {}
    for place, kind in enumerate(("curl", "python", "json", "response"), 1):
        page.click(f".choices button:nth-child({place})")
        code[kind] = page.evaluate("document.querySelector('pre').textContent")
    entities = {(one["text"], one["label"]) for one in json.loads(code["response"])["entities"] if one["score"] >= 0.5}
    answers = [
        json.loads(run("bash", "-c", code["curl"])),
        patient.post(
            f"{server}/v1/extract", content=code["json"], headers={"Content-Type": "application/json"}, timeout=60
        ).json(),
    ]
    assert [{(one["text"], one["label"]) for one in answer["entities"]} for answer in answers] == [entities, entities]
    printed = run(sys.executable, "-c", code["python"])
    assert all(f"{text} {label} " in printed for text, label in entities)
    assert "Bill Gates founded Microsoft" in printed


def test_the_result_is_downloaded_as_json_csv_and_a_page(page, tab, tmp_path):
    text = f"Grace Hopper 😀 worked in New York. {PAYLOAD}"
    enter(page, text)
    wait_for_marks(page, "Grace Hopper", "New York")
    tab.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    files = ["extraction.json", "entities.csv", "extraction.html"]
    for place in range(1, 1 + len(files)):
        page.click(f"#downloads button:nth-of-type({place})")
    while not all((tmp_path / name).exists() for name in files):
        page.wait("true")
    answer, table = [(tmp_path / name).read_text("utf-8") for name in files[:2]]
    entities = {(one["start"], one["end"]): one for one in json.loads(answer)["entities"]}
    rows = list(csv.DictReader(table.splitlines()))
    assert {"Grace Hopper", "New York"} <= {row["text"] for row in rows}
    for row in rows:
        one = entities[int(row["start"]), int(row["end"])]
        assert (row["text"], row["label"], float(row["score"])) == (one["text"], one["label"], one["score"])
    assert page.messages == []
    tab.open((tmp_path / "extraction.html").as_uri())
    assert tab.evaluate("document.querySelector('main').textContent") == text
    assert {"Grace Hopper", "New York"} <= set(tab.evaluate(MARKS.replace("#document", "main")))
    assert tab.evaluate("document.title") == "Extraction"
    assert tab.messages == []


REDACTED = "[...document.querySelectorAll('.redaction section:nth-child({}) mark')].map((mark) => mark.textContent)"
HUES = "[...document.querySelectorAll('.redaction section:nth-child({}) mark')].map((mark) => mark.style.cssText)"


def test_a_text_is_redacted_and_an_edited_answer_restored(page, server):
    names = ["Laura Bennett", "14 March 1986", "27 Maple Street", "Portland"]
    page.click("#presets button:nth-child(2)")
    wait_for_marks(page, *names)
    page.click("#tab-redacted")
    page.wait(f"{REDACTED.format(2)}.includes('[CREDIT_CARD_1]')")
    code = "document.querySelector('.redaction pre').textContent"
    assert "labels" not in page.evaluate(code), "by default, for personal data"
    page.click(".pane.redacted .check:nth-of-type(2) input")  # the labels of the form
    page.wait(f"{code}.includes('labels')")
    assert page.evaluate(REDACTED.format(1))[:4] == names
    assert page.evaluate(REDACTED.format(2))[0] == "[PERSON_1]"
    hues = page.evaluate(HUES.format(1))
    assert (page.evaluate(HUES.format(2)), len(set(hues))) == (hues, 7)
    page.hover(".redaction section:nth-child(2) mark")
    assert page.wait("document.querySelectorAll('.redaction mark.on').length") == 2
    put(page, "#answer", "Dear **[Person 1]** of [CITY_1] and [CITY_7]")
    restored = "document.querySelector('.redaction section:nth-child(4) .text').textContent"
    page.wait(f"{restored} === 'Dear **Laura Bennett** of Portland and [CITY_7]'")
    assert page.evaluate("document.querySelector('.redaction .hint').textContent") == "2 restored · unknown: [CITY_7]"
    page.wait("document.querySelector('.redaction pre').textContent.includes('CITY_7')")
    answers = run("bash", "-c", page.evaluate("document.querySelector('.redaction pre').textContent"))
    assert json.loads(answers[answers.index('{"texts":["Dear') :])["restored"] == 2
    page.click(".redaction .choices button:nth-child(2)")
    printed = run(sys.executable, "-c", page.evaluate("document.querySelector('.redaction pre').textContent"))
    assert printed.endswith("[CREDIT_CARD_1].\nDear **Laura Bennett** of Portland and [CITY_7]\n")
    enter(page, "Laura Bennett has 00:1b:44:11:3a:b7.")
    page.wait(f"{REDACTED.format(2)}.includes('[MAC_ADDRESS_1]')")
    page.click(".pane.redacted .check input")  # off
    page.wait(f"!{REDACTED.format(2)}.includes('[MAC_ADDRESS_1]') && {REDACTED.format(2)}.includes('[PERSON_1]')")
    assert page.messages == []


HANG = """
window.plainFetch = fetch;
window.fetch = (url, options) => {
  if (!String(url).includes('/v1/redact')) return plainFetch(url, options);
  window.hanging = true;
  return new Promise((_, fail) => options.signal.addEventListener('abort', () => fail(options.signal.reason)));
};
"""


def test_a_text_that_changes_while_it_is_redacted_is_no_error(page):
    page.click("#tab-redacted")
    page.wait(f"{REDACTED.format(2)}.includes('[PERSON_1]')")
    page.evaluate(HANG)
    enter(page, "Grace Hopper")
    page.wait("window.hanging")
    page.evaluate("window.fetch = plainFetch; 0")
    enter(page, "Satya Nadella is here.")
    page.wait("document.querySelector('.redaction section:nth-child(2) .text').textContent === '[PERSON_1] is here.'")
    assert page.messages == []


def test_a_text_that_cannot_be_redacted_is_not_shown(tab):
    with gateway_in_memory(max_mapping_bytes=400) as url:
        tab.open(f"{url}/playground")
        tab.wait("document.querySelectorAll('#document mark').length")  # of the first example
        tab.click("#tab-redacted")
        tab.wait("!document.querySelector('.pane.redacted .empty').textContent.startsWith('No text')")
        enter(tab, "Ada met Bob.")
        tab.wait("document.querySelector('.redaction .text').textContent === 'Ada met Bob.'")
        enter(tab, "Ada met " + " ".join(f"Al{chr(ord('a') + number)}" for number in range(26)))  # a large mapping
        tab.wait("document.querySelector('.redaction').hidden")
        note = tab.evaluate("document.querySelector('.pane.redacted .empty').textContent")
        assert note.startswith("mapping: it would have")
        assert tab.evaluate("document.querySelector('.redaction').textContent.includes('Ada')") is False
        assert tab.evaluate("document.getElementById('answer').value") == ""


def run(*command: str) -> str:
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout


def test_a_link_has_all_that_was_entered(page, server):
    enter(page, "Grace Hopper worked in New York. Überall “quotes” 😀")
    page.click("#relations .heading button")
    wait_for_marks(page, "Grace Hopper")
    link = saved_link(page)
    page.open(link)
    wait_for_marks(page, "Grace Hopper")
    assert page.evaluate("document.getElementById('text').value").endswith("“quotes” 😀")
    assert page.evaluate("document.querySelectorAll('#relations .chip').length") == 0


def test_an_error_is_shown_as_the_api_says_it(page):
    put(page, ".pair input", "3", "change")
    error = page.wait("document.querySelector('.notice.error')?.innerText")
    assert "window_words: Input should be greater than or equal to 8" in error
    assert "422 · invalid_field · field window_words · request" in error
    assert (
        page.evaluate("document.querySelector('#options [aria-invalid]').parentElement.textContent")
        == "Words per window"
    )
    put(page, ".pair input", "", "change")
    page.wait("document.querySelector('.notice') === null")


SHOWN = "document.getElementById('document').textContent"


def set_live(page: Page, *, live: bool) -> None:
    box = "[...document.querySelectorAll('.options .check')].find((one) => one.textContent.includes('as you type'))"
    page.evaluate(f"(() => {{ const field = {box}.querySelector('input'); if (field.checked !== {json.dumps(live)}) "
                  "field.click(); })()")  # fmt: skip


def test_an_old_result_never_stands_beside_a_new_text(page):
    set_live(page, live=False)
    enter(page, "Grace Hopper worked in New York.")
    page.wait(f"{SHOWN} === 'Grace Hopper worked in New York.'")
    page.wait("document.querySelectorAll('.pane.entities tbody tr[data-place]').length === 0")
    page.click("#run")
    wait_for_marks(page, "Grace Hopper")
    put(page, ".pair input", "3", "change")
    page.click("#run")
    page.wait("document.querySelector('.notice.error') !== null")
    assert page.evaluate(MARKS) == []


def test_a_file_that_is_opened_runs_at_once_without_running_as_one_types(page):
    set_live(page, live=False)
    page.evaluate(
        """(() => { const files = new DataTransfer();
        files.items.add(new File(['Ada Lovelace lived in London.'], 'a.txt', { type: 'text/plain' }));
        const input = document.getElementById('file'); input.files = files.files;
        input.dispatchEvent(new Event('change')); })()"""
    )
    wait_for_marks(page, "Ada Lovelace")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_graph_fills_the_window_and_is_zoomed(tab, server, width):
    open_example(tab, server, width)
    tab.click("#tab-graph")
    tab.wait("document.querySelector('.canvas canvas') !== null")
    tool = "document.querySelector('.tools button:nth-child({})').click()"
    size, zoom = "document.querySelector('.canvas').clientHeight", "document.querySelector('.canvas')._cyreg.cy.zoom()"
    small = tab.evaluate(size)
    tab.evaluate(tool.format(4))
    assert tab.wait(f"{size} === innerHeight && {size}") > small
    fitted = tab.evaluate(zoom)
    tab.evaluate(tool.format(2))
    assert tab.evaluate(zoom) > fitted
    tab.evaluate(tool.format(3))
    assert tab.evaluate(zoom) == pytest.approx(fitted)
    tab.evaluate("document.querySelector('.tools').dispatchEvent(new KeyboardEvent('keydown', "
                 "{ key: 'Escape', bubbles: true }))")  # fmt: skip
    assert tab.wait(f"{size} < innerHeight && {size}") == small
    assert tab.messages == []


@contextlib.contextmanager
def gateway_in_memory(**settings: object) -> Iterator[str]:
    """The URL of a gateway over a replica without a model. settings: `tasks` are the model's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT_ROOT / "tests" / "unit"))
        patch.syspath_prepend(str(PROJECT_ROOT / "tests" / "unit" / "gateway"))
        from doubles.memory_replica import INFO, MemoryReplica
        from gateway_options import OPTIONS

        tasks = settings.pop("tasks", INFO.tasks)
        app = GatewayApp(
            dataclasses.replace(OPTIONS, **{"enable_playground": True, "max_text_chars": 1000, **settings})
        )
        app.bind(MemoryReplica(model=dataclasses.replace(INFO, tasks=tasks)))
        with on_a_socket(app) as url:
            yield url


def test_a_key_is_asked_for_and_a_wrong_one_is_named_in_view(tab):
    keys = json.dumps([{"name": "k", "sha256": hash_of("secret")}])
    with gateway_in_memory(api_keys=keys) as url:
        tab.open(f"{url}/playground", width=390)
        tab.evaluate("sessionStorage.clear()")
        tab.open(f"{url}/playground", width=390)
        tab.wait("!document.getElementById('key-form').hidden")
        assert tab.evaluate("document.querySelector('.notice')") is None
        assert tab.evaluate("document.getElementById('key-error').hidden") is True
        for key, is_refused in (("wrong", True), ("secret", False)):
            put(tab, "#key", key)
            tab.evaluate("document.getElementById('key-form').requestSubmit()")
            if is_refused:
                tab.wait("!document.getElementById('key-error').hidden")
                place = tab.evaluate("document.getElementById('key-error').getBoundingClientRect().toJSON()")
                assert 0 <= place["top"] < place["bottom"] <= tab.evaluate("innerHeight")
        wait_for_marks(tab, "Warsaw")
        assert tab.evaluate("document.getElementById('key-form').hidden") is True


def test_a_classifiers_page_has_no_tabs_for_entities(tab):
    with gateway_in_memory(tasks=("classifications",)) as url:
        tab.open(f"{url}/playground")
        tab.wait("document.getElementById('labels').hidden")
        titles = "[...document.querySelectorAll('[role=tab]:not([hidden])')].map((one) => one.id)"
        assert tab.wait(f"{titles}.length === 1 && {titles}") == ["tab-code"]
        assert tab.evaluate("document.getElementById('filters').hidden") is True


def test_a_file_can_be_dropped(page):
    request = {
        "text": "Ada Lovelace lived in London.",
        "labels": {"city": {"description": "a city or town", "threshold": 0.1}},
    }
    page.evaluate(
        "(() => { const data = new DataTransfer(); data.items.add(new File(["
        f"{json.dumps(json.dumps(request))}], 'request.json')); dispatchEvent(new DragEvent('drop', "
        "{dataTransfer: data, cancelable: true})); })()"
    )
    wait_for_marks(page, "London")
    assert page.evaluate("document.querySelector('#labels .chip').title") == "a city or town"
    assert page.evaluate("document.querySelector('#labels .rows input').value") == "a city or town"
    assert page.evaluate("document.querySelector('#labels .rows [type=number]').value") == "0.1"


def test_a_documents_text_is_shown_by_page_and_a_refused_document_is_named(tab, tmp_path):
    names = [f"N{chr(97 + page // 26)}{chr(97 + page % 26)}" for page in range(50)]
    (tmp_path / "report.pdf").write_bytes(report([[["of all"], [f"here is {name}"], [], ["end"]] for name in names]))
    (tmp_path / "locked.pdf").write_bytes(encrypted_pdf("secret"))
    shown = f"Object.entries({BY_PAGE}).map(([heading, [text]]) => [heading, text.trim()])"
    texts = [[f"Page {page}", f"of all\n\nhere is {name}\n\nend"] for page, name in enumerate(names, 1)]
    with gateway_in_memory(max_text_chars=5000, max_body_bytes=10**6) as url:
        for width, theme in ((1280, "light"), (390, "dark")):
            tab.open(f"{url}/playground", width=width, theme=theme)
            tab.wait("document.querySelectorAll('mark').length")
            drop(tab, tmp_path / "report.pdf")
            wait_for_marks(tab, *names[:2])
            assert tab.evaluate(shown) == texts
            assert tab.evaluate(f"{BY_PAGE}['Page 2'][1]") == [names[1]]
            end = "document.querySelector('#document').scrollTop = 1e6"  # again, when arcs have made the text longer
            assert tab.wait(f"({end}, {BY_PAGE}['Page 50'][1].length && {BY_PAGE}['Page 50'][1])") == [names[-1]]
            row = "document.querySelector('.pane.entities tr[data-place=\"1\"]')?.textContent"
            assert tab.wait(f"{row}?.startsWith('{names[1]}') && {row}").endswith("page 2")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert tab.messages == []
        drop(tab, tmp_path / "locked.pdf")
        assert tab.wait("document.querySelector('.notice.error p')?.textContent") == "locked.pdf: encrypted"
        assert tab.evaluate("document.querySelectorAll('.place').length") == 50
        enter(tab, "Ada lives here.")
        tab.wait("document.querySelector('.place') === null")


def test_heads_and_tails_of_relations_are_kept_and_can_be_changed(page):
    about = {"description": "founded a company", "head": ["person"], "tail": ["organization"], "threshold": 0.4}
    page.click("#relations-input")
    paste(page, json.dumps({"established": about, "praised": {"head": ["person", "city"]}}))
    field = '[aria-label="Labels of praised\'s {}"]'
    assert page.evaluate(f"document.querySelector({json.dumps(field.format('head'))}).value") == "person, city"
    put(page, field.format("tail"), "event, organization", "change")
    page.click("#tab-code")
    page.click(".choices button:nth-child(3)")
    page.wait("document.querySelector('pre').textContent.includes('event')")
    code = json.loads(page.evaluate("document.querySelector('pre').textContent"))
    assert code["relations"]["established"] == about
    assert code["relations"]["praised"] == {"head": ["person", "city"], "tail": ["event", "organization"]}
    assert code["relations"]["founded"] == "founded"


def test_overlapping_spans_have_lanes_of_their_own(page):
    lanes = """import("/playground/extraction.js").then(({ lanesOf, segmentsOf, blocksOf }) => {
      const spans = [[0, 22], [0, 10], [14, 30], [24, 30], [24, 30]];
      const entities = spans.map(([start, end], index) => ({ start, end, index }));
      const text = ("Ein Satz \\u{1f600}. ".repeat(40) + "\\n").repeat(9) + "x".repeat(5000);
      return {
        lanes: [...lanesOf(entities)].sort().map(([, lane]) => lane),
        segments: segmentsOf(entities, 0, 40).map((one) => [one.start, one.end, one.entities.map((e) => e.index)]),
        whole: blocksOf(text).map(([start, end]) => text.slice(start, end)).join("") === text,
        characters: blocksOf(text).every(([start]) => !/[\\udc00-\\udfff]/.test(text[start])),
      };
    })"""
    assert page.evaluate(lanes) == {
        "lanes": [1, 0, 2, 0, 1],
        "segments": [
            [0, 10, [0, 1]],
            [10, 14, [0]],
            [14, 22, [0, 2]],
            [22, 24, [2]],
            [24, 30, [2, 3, 4]],
            [30, 40, []],
        ],
        "whole": True,
        "characters": True,
    }


def test_a_second_request_aborts_the_first(page):
    ended = """import("/playground/extractor.js").then(async ({ Extractor }) => {
      const ended = [];
      const onEnd = (extraction) => ended.push(extraction.text.length);
      const extractor = new Extractor({ onStart() {}, onProgress() {}, onError: (error) => ended.push(error), onEnd });
      await Promise.all([extractor.run(), extractor.run()]);
      return ended;
    })"""
    assert page.evaluate(ended) == [page.evaluate("document.getElementById('text').value.length")]


def test_a_long_text_is_streamed_and_only_what_is_near_has_elements(page):
    page.click("#relations .heading button")
    sentences = "Ada Lovelace met Charles Babbage in London in 1843.\n" * 300
    enter(page, sentences)
    page.wait("document.getElementById('progress').value > 0")
    page.wait("document.getElementById('status').textContent.includes(' windows')")
    entities = page.evaluate("Number(document.querySelector('#tab-entities .number').textContent)")
    assert entities > 900
    assert 0 < page.evaluate("document.querySelectorAll('mark').length") < entities / 2
    assert page.evaluate("document.querySelectorAll('.pane.entities tr').length") < 100
    assert page.evaluate("document.querySelector('.content').textContent.length") > len(sentences)
    page.evaluate("document.querySelector('#document').scrollTop = 1e6")
    last = "document.querySelector('.block:last-of-type').querySelectorAll('mark').length"
    assert page.wait(last)


@pytest.mark.parametrize("width", [1280, 390])
def test_one_of_several_models_can_be_chosen(tab, observed, width):
    tab.open(f"{observed.url}/playground", width=width)
    wait_for_marks(tab, "Marie Curie")
    assert tab.evaluate("[...document.getElementById('models').options].map(({value}) => value)") == ["general", "pii"]
    first = tab.wait("location.hash")
    put(tab, "#models", "pii", "change")
    tab.wait("document.getElementById('status').textContent.endsWith(' · pii')")
    wait_for_marks(tab, "Marie Curie")
    tab.click("#tab-code")
    assert '"model": "pii"' in tab.evaluate("document.querySelector('pre').textContent")
    tab.wait(f"location.hash !== '{first}'")  # it is saved a moment after each change
    link = tab.evaluate("location.href")
    tab.open("about:blank")
    tab.open(link, width=width)
    tab.wait("document.getElementById('status').textContent.endsWith(' · pii')")
    assert tab.evaluate("document.getElementById('models').value") == "pii"
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 820, 390])
def test_it_is_accessible(tab, server, theme, width, axe):
    tab.open(f"{server}/playground", width=width, theme=theme)
    wait_for_marks(tab, "Marie Curie")
    tab.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    for name in ("entities", "relations", "graph", "redacted", "code"):
        tab.click(f"#tab-{name}")
        if name == "redacted":
            tab.wait("document.querySelector('.redaction .choices') !== null")
        tab.evaluate(f"(() => {{ {axe} }})()")
        result = tab.evaluate("axe.run().then(({passes, violations}) => [passes.length, violations])")
        assert result[0] > 15
        assert [(one["id"], one["nodes"][0]["target"]) for one in result[1]] == []


@pytest.fixture(scope="session")
def axe(tmp_path_factory) -> str:
    """axe-core, from npm."""
    folder = tmp_path_factory.mktemp("axe")
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(["npm", "pack", "axe-core@4.14.1"], cwd=folder, check=True, capture_output=True, timeout=120)
        subprocess.run(["tar", "xzf", "axe-core-4.14.1.tgz"], cwd=folder, check=True)
        return Path(folder, "package", "axe.min.js").read_text(encoding="utf-8")
    pytest.skip("axe-core cannot be fetched from npm")
