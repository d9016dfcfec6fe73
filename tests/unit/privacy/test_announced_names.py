"""Names behind fields and phrases, and before honorifics."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.announced_names import announced_names
from gliner_bento.privacy.near import Clues

NAMES = {
    "Surname: [Castellanos]\nGiven names: [Ximena Paola]\nFile name: report final": "fields of a form",
    'name: [ivan petrov] tel: 1, user_name="[carlos.mendez]", {"name": "[Thabo]"}': "code and chats",
    "Name\t[Bogdan Ionescu]\nDepartment\tLogistics": "a table",
    "Nachname: [Großmann]; Фамилия: [Воронцов]; Imię: [Łukasz]; Apellidos: [Núñez]": "other languages",
    "my name is [Siobhán van der Meer] and I am late": "a phrase",
    "Je m'appelle [Hélène d'Aubigné], ich heiße [Jürgen]. Меня зовут [Алексей Воронцов], мой": "other phrases",
    "Hola, soy [Itziar Mendizábal]. Olá, sou o [Thiago], eu sou [Ana Reis]. sono [Luca]. ich bin [Jo Ek]": "I am",
    "ich bin Lehrer in Ulm, je suis Français, Soy Sauce, ik ben arts, jestem Polakiem, estoy aquí": "no names",
    "[佐藤花子]と申します。[アンナ・シュミット]といいます。": "Japanese",
    "我叫[王小明]，电话是；姓名：[李娜]": "Chinese",
    "[佐藤花子]さんのメール": "an honorific",
    "姓名：[王 小明] 住址：北京\n客户：[李] 住址：北京; 姓名：[Wang Li] 住址：北京": "the next field",
    "제 이름은 [김민수]이고": "Korean",
    "الاسم: [محمد عبد الرحمن] الهاتف: 5": "Arabic, before the next field",
    "שמי [יעל כהן] ואני גרה; ฉันชื่อ [สมชาย ใจดี] โทร; मेरा नाम [प्रिया शर्मा] है": "scripts without capitals",
    "Name: [A. Turing]\nName: [An Nguyen], name: [Or Cohen]; Surname: [See], my name is [An van Dam]": "capitals",
    "**Name:** [Ada Lovelace]\n- **Surname**: *[Ng]*\nOwner: x, name: **[Bob Ek]** is": "Markdown",
    "name: the value, Name: See above; name: or, surname: same as mine, Name: Not applicable, name=**kwargs": "words",
    "Dear Ms. [Vandermeulen],\n\nthanks.\n\nKind regards,\n[Philippa Ashdown]\nHuman Resources": "a letter",
    "Dear [Comet], get well soon! [Harbor]": "a note on one line",
    "Hi, I need help. We\nHello, Just asking.\nHallo, Ich bin da.\nHi, I'm late!\nHey This is it.": "no greeted",
    "Hi, [Ada]! See you\nHey [Can] can you call.": "short greetings",
    "Hi [Otto], see you at noon. Thanks": "no signature",
    "Hi [Freya],\nbring slides.\n\nBest,\n[Mateus]": "a short mail",
    "Hi [Otto],\nsee you at 6.\n[Lotte]": "a name below the last line",
    "Hi [Otto],\nplease call.\n\nDPD": "a firm below the last line",
    "お客様名：[高橋美咲] お客様へ 皆様": "a Japanese customer",
    "EF 35 %, moderate MR. Start B. Has MS. Seen by MR [KOSKI], Mr [Ek]": "diagnoses",
    "Sehr geehrte Frau [Pohl],\n\nbis dann.\n\nMit freundlichen Grüßen\n[Jens Ahrend]": "a German letter",
    "Ask Dr. [Rivers] and Mrs [Stone] about Prof. [Ada von Lindt].": "titles",
    "il dottor [Sgambati] vuole, la signora [Rossi]; ask the doctor Before noon, this is judge Work": "small titles",
    "em tên là [Nguyễn Thị Hạnh], 26": "Vietnamese",
    "Insured: [Cornelius Vandersloot]\nWitness (of the claim): [Ione Castle]\nPresent: [A. Lind], [Bo Ek]": "roles",
    "Last name\n[Oyelaran]\nFull name  [Ewa Nowicka]  Card no.": "fields without a colon",
    '<name>[Zora Kert]</name>, WHERE name = \'[Otto Fry]\', {"first":"[Thabo]","last":"[Moko]"}': "more code",
    "[мария сергеевна кузнецова] живёт": "a patronymic",
    "Name: N/A\nSurname: none\nName: -\nName: n.a.\nName: unknown\nName: x\nName: not given": "no value",
    "Dear Sir or Madam, Dear all, Dear Hiring Team,\nok.\n\nBest,\nThe Team": "nobody",
    "Mr. President, Dr Pepper, Mr. and Mrs. are titles\nFrom: Facility Management\nTo: All Staff\nOwner: root": "no",
    "my name is not important. name: string, name = get_name(), username: none; the names of cities": "none",
}


@pytest.mark.parametrize("marked", NAMES, ids=NAMES.values())
def test_names_that_are_announced(marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    found = sorted(announced_names(Clues(text)), key=lambda span: span.start)
    assert [text[span.start : span.end] for span in found] == expected
    assert all((span.label, span.by_recognizer) == ("person", True) for span in found)
