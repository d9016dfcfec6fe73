"""Names behind a word for somebody close in other languages than English, such as "мой муж Игорь" and "meine Schwester
Ruth". Models miss many of them in scripts and languages that they know little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, takewhile

from gliner_bento.privacy.name_words import WORD_START, words_of
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_RELATIVES = (
    # possessives, relatives
    ("(?:mein|dein|sein|ihr|unser)(?:e[rmns]?)?", "mann|frau|bruder|schwester|sohn|tochter|mutter|vater|mama|papa|"
     "oma|opa|onkel|tante|"
     "neffe|nichte|freund|kolleg|nachbar|chef|ehemann|ehefrau|enkel|cousin"),
    ("mis?|tus?|sus?|nuestr[oa]", "marido|espos[oa]|mujer|herman[oa]|hij[oa]|madre|padre|mamá|papá|abuel[oa]|tí[oa]|"
     "prim[oa]|"
     "sobrin[oa]|novi[oa]|amig[oa]|colega|vecin[oa]|jef[ea]|compañer[oa]|suegr[oa]|niet[oa]"),
    ("mon|ma|ton|ta|son|sa|notre|votre", "mari|femme|frère|sœur|soeur|fils|fille|mère|père|maman|papa|oncle|tante|"
     "cousin|"
     "neveu|nièce|ami|copain|copine|collègue|voisin|patron|grand-mère|grand-père|belle-mère|beau-père"),
    ("mi[oa]|tu[oa]|su[oa]|nostr[oa]", "marito|moglie|fratello|sorella|figli[oa]|madre|padre|mamma|papà|nonn[oa]|"
     "zi[oa]|"
     "cugin[oa]|nipote|amic[oa]|collega|vicin[oa]|capo|ragazz[oa]|fidanzat[oa]|suocer[oa]"),
    ("meu|minha|seu|sua|noss[oa]", "marido|espos[oa]|mulher|irmão|irmã|filh[oa]|mãe|pai|avô|avó|ti[oa]|prim[oa]|"
     "namorad[oa]|"
     "amig[oa]|colega|vizinh[oa]|chefe|sogr[oa]|net[oa]"),
    ("mijn|zijn|haar|onze", "man|vrouw|broer|zus|zoon|dochter|moeder|vader|oma|opa|oom|tante|neef|nicht|vriend|collega|"
     "buurman|buurvrouw|baas"),
    ("min|mitt|vår|hans|hennes|hendes", "man|mand|mann|fru|kone|bror|syster|søster|son|sønn|søn|dotter|datter|mamma|"
     "mor|"
     "pappa|far|mormor|morfar|farmor|farfar|kollega|granne|nabo"),
    ("m[oó]j[aąe]?|moje(?:go|j|mu)|tw[oó]j[aą]?|nasz[aą]?", "mąż|męż|żon|brat|siostr|syn|córk|mam|tat|ojciec|ojca|"
     "babci|dziad|"
     "koleg|koleżank|sąsiad|przyjaci|wuj|cioci|teść|teściow"),
    ("můj|moje|moji|mého", "manžel|bratr|sestr|syn|dcer|matk|otec|babičk|dědeč|kamarád|koleg|soused"),
    ("мо(?:й|я|ю|его|ей|ему|им)|(?:тв|св)о(?:й|я|ю|его|ей|ему|им)|наш[ау]?|ваш[ау]?|его|её|ее|мій|мого|моєї|його|її",
     "муж|жен|сын|доч|брат|сестр|мам|мать|матер|пап|отец|отц|бабуш|дедуш|дяд|т[её]т|друг|подруг|коллег|сосед|внук|внуч|"
     "племянни|чоловік|дружин|син|доньк|тат|бабус|дідус|сусід"),
    ("ο|η|τον|την|του|της", "(?:άντρας|άντρα|σύζυγος|σύζυγο|γυναίκα|αδερφός|αδερφό|αδερφή|γιος|γιο|κόρη|μητέρα|μαμά|"
     "πατέρας|"
     "μπαμπάς|φίλος|φίλη|γιαγιά|παππούς) μου"),
    ("so[țţ]ul|so[țţ]ia|fratele|sora|fiul|fiica|mama|tata|prietenul|prietena|bunica|bunicul", "meu|mea"),
)  # fmt: skip
_CALLED = (
    r"(?:(?:hei(?:ß|ss)t|namens|se llama|s['’]appelle|si chiama|se chama|heet|heter|hedder|po imieniu|зовут|по "
    r"имени|на имя|"
    r"λέγεται),?[ ])?"
)
_NAME = r"[^\W\d_]{2,21}(?:['’-][^\W\d_]{2,21})?"
_NAMES = rf"(?P<name>{_NAME}(?:[ ]{_NAME}){{0,2}})(?![\w-])"
_IN_CASE = re.compile(
    rf"{WORD_START}(?:"
    + "|".join(rf"(?:{owners})[ ](?:{kin})[^\W\d_]{{0,5}}" for owners, kin in _RELATIVES)
    + rf"),?[ ]{_CALLED}{_NAMES}",
    re.IGNORECASE,
)
_WITHOUT_OWNER = re.compile(
    rf"{WORD_START}(?:kocam|karım|eşim|oğlum|kızım|annem|babam|kardeşim|ablam|abim|amcam|teyzem|dayım|halam|"
    rf"arkadaşım|komşum|"
    rf"мама|папа|бабушка|дедушка|т[её]тя|дядя|сестра|брат|мамо|тато|баба|дід)[ ]{_NAMES}",
    re.IGNORECASE,
)
_END_OF_CLAUSE = re.compile(r"[ ](?:hat|hatte|bekam|bekommt|nimmt|braucht)(?:[,.;!?]|\Z)")
"""Behind a noun in German that is no name: "weil meine Mutter Diabetes hat"."""
_SURNAMES = (
    "王李张張刘劉陈陳杨楊黄黃赵趙吴吳周徐孙孫马馬朱胡郭何高林罗羅郑鄭梁谢謝宋唐许許韩韓冯馮邓鄧曹彭曾肖田董袁潘于蒋蔣"
    "蔡余杜叶葉程苏蘇魏吕呂丁任沈姚卢盧姜崔钟鐘谭譚陆陸汪范金石廖贾賈夏韦韋付方白邹鄒孟熊秦邱江尹薛闫段雷侯龙龍史陶"
)
_ARABIC = r"[\u0621-\u064a]{3,15}"
_OTHER_SCRIPTS = re.compile(
    r"(?:我|他|她)的?(?:妈妈|媽媽|爸爸|母亲|父亲|母親|父親|丈夫|老公|妻子|老婆|儿子|兒子|女儿|女兒|哥哥|弟弟|姐姐|妹妹|爷爷|"
    rf"奶奶|朋友|同事|邻居|老板|室友|同学)(?:叫|是|名叫)?(?P<han>[{_SURNAMES}][\u4e00-\u9fff]{{1,2}})"
    r"|(?:夫|妻|息子|娘|兄|弟|姉|妹|母|父|友人|同僚|上司)の(?P<japanese>[\u4e00-\u9fff々\u30a1-\u30ffー]{2,6})(?=は|が|を|と|に|です|、|。|\Z)"
    r"|(?:남편|아내|아들|딸|오빠|언니|누나|동생|어머니|아버지|친구|동료) "
    r"(?P<korean>[\uac00-\ud7a3]{3})(?=은|는|이|가|을|를|와|과|의|에게| |,)"
    r"|(?<![\u0600-\u06ff])و?(?:زوجي|زوجتي|أخي|أختي|ابني|ابنتي|صديقي|صديقتي|والدي|والدتي|أمي|أبي|عمي|خالي|جدي|"
    r"جدتي)[ ](?:اسمه[ا]?[ ])?"
    rf"(?!ال|في[ ]|من[ ]|لا[ ]|لم[ ]|هو[ ]|هي[ ]|كان|مريض|لديه|عنده|يعاني|تعاني|الذي|التي)(?P<arabic>{_ARABIC})(?=[ "
    rf"]{_ARABIC})"
    r"|(?<![\u0590-\u05ff])(?:בעלי|אשתי|אחי|אחותי|אמי|אבי|בני|בתי|חברי|חברתי)[ ](?!לא[ ]|הוא|היא|"
    r"של)(?P<hebrew>[\u05d0-\u05ea]{2,12})(?=[ ][\u05d0-\u05ea])"
    r"|(?:मेरे|मेरी|मेरा|हमारे|हमारी)[ ](?:पति|पत्नी|भाई|बहन|माँ|मां|पिता|बेटा|बेटी|बेटे|दोस्त|दादी|दादा|नानी|चाचा|"
    r"मामा|सास)[ ]"
    r"(?:का नाम[ ])?(?P<hindi>[\u0900-\u0963]{2,15})(?![\u0900-\u0963]|[ ](?:में|से|पर|है|हैं|था|"
    r"थी)(?![\u0900-\u0963]))"
)
_OWNERS = words_of(
    "mi mis tu tus su sus nuestro nuestra mon ma ton ta son sa notre votre mio mia tuo tua suo sua nostro nostra "
    "meu minha "
    "seu nosso nossa mijn zijn haar onze min mitt hans hennes hendes moja moje mojego mojej mojemu twoja twoj "
    "moj moji nasz nasza sora mama tata fiul fiica fratele prietenul prietena bunica bunicul kocam annem babam "
    "ablam abim "
    "amcam teyzem halam"
) | {owner + end for owner in words_of("mein dein sein ihr unser") for end in ("", "e", "er", "em", "en", "es")}
"""Each match that is ASCII has one of these words."""


def foreign_relatives(clues: Clues) -> Iterator[LabeledSpan]:
    """The names in a text; spans may overlap. In linear time."""
    if not clues.has_word(_OWNERS):
        return
    text = clues.text
    for match in chain(_IN_CASE.finditer(text), _WITHOUT_OWNER.finditer(text)):
        words = [*takewhile(lambda word: word[:1].isupper(), match["name"].split(" "))]
        start = match.start("name")
        end = start + len(" ".join(words))
        if words and not _END_OF_CLAUSE.match(text, end):
            yield _person(start, end)
    for match in () if clues.is_plain else _OTHER_SCRIPTS.finditer(text):
        yield _person(*match.span(match.lastgroup or 0))


def _person(start: int, end: int) -> LabeledSpan:
    return LabeledSpan(start, end, "person", by_recognizer=True, score=_SCORE)
