"""Names behind words for relatives and friends in other languages than English."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.foreign_relatives import foreign_relatives
from gliner_bento.privacy.near import Clues

NAMES = {
    "Мой брат [Кирилл] и моя тётя [Зоя Павловна] спят. Своей сестре [Ольге] пишу. Дядя [Фёдор] дома.": "Russian",
    "мого сина [Тараса], мою доньку [Олену]": "Ukrainian",
    "Meine Kollegin [Sabine Röder] und mein Onkel [Egon] kommen; unserem Sohn [Till] geht es gut.": "German",
    "weil meine Mutter Diabetes hat. Mein Bruder kommt; meine Frau ist krank": "no names in German",
    "mi prima [Rocío] y nuestro hijo [Iker] salen; mi casa Blanca, su marido trabaja": "Spanish",
    "mon oncle [Loïc] dort, sa fille [Maëlys], sa voisine est là": "French",
    "mio fratello [Gianluca], la mia nonna [Ines]; minha irmã [Jussara], meu filho dorme": "Italian and Portuguese",
    "mijn vrouw [Annelies] zegt; min bror [Håkan] sover; moją siostrę [Grażynę]; můj bratr [Zdeněk]": "and more",
    "soția mea [Mihaela]; kocam [Serkan] evde; η κόρη μου [Ελένη]; ο γιος μου λέγεται [Νίκος]": "other word orders",
    "我妈妈[陈秀英]住院了，他的朋友叫[李强]，我妈妈住院了": "Chinese",
    "母の[和子]が来た。제 친구 [김민수]는 자요. 친구가 왔다": "Japanese and Korean",
    "أخي [يوسف] يعمل هنا. زوجتي مريضة جدا": "Arabic",
    "मेरी बहन [सुनीता] घर गई। मेरे पति बीमार हैं, मेरी बहन दिल्ली में है": "Hindi",
    "אחותי [רונית] גרה כאן": "Hebrew",
    "in a ton of fille 3, my Mama Mia, he has mon ami": "English",
}


@pytest.mark.parametrize("marked", NAMES, ids=NAMES.values())
def test_names_of_relatives_in_other_languages(marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    found = sorted({(span.start, span.end) for span in foreign_relatives(Clues(text))})
    assert [text[start:end] for start, end in found] == expected
