"""Text families of the built-in sample: prose topics and languages other than English.

In: a counter ``k`` (0, 1, 2, ...), one per row of a family. Out: a ``Sample`` holding the texts of one row.
Every family is a pure function of ``k``. Its query, and at least one of its two other texts, name a value that differs
for every ``k`` below 3,989 (130,000 rows), so no two rows are equal, even where one of the three texts is left out.
All texts were written for this project; numbers, dates and word forms in them are computed, never typed in.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta


@dataclass(frozen=True)
class Sample:
    """The texts of one raw row; ``seed_text`` is the passage a question was made from, where there is one."""

    language: str
    exercise: str
    query: str
    reasoning: str
    answer: str
    seed_text: str | None = None
    constraints: str | None = None


Family = Callable[[int], Sample]


def words(text: str) -> list[str]:
    """The words of a list written as one string, which reads better than quotes around each word."""
    return text.split()


MONTHS_EN = words("January February March April May June July August September October November December")
MONTHS_FR = words("janvier février mars avril mai juin juillet août septembre octobre novembre décembre")
MONTHS_PL = words("stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia")


def notes(*parts: tuple[str, Sequence[str]]) -> str:
    """Condensed reasoning notes: numbered headings, each over its short lines."""
    return "\n\n".join(f"### {n}. {title}\n\n" + "\n".join(lines) for n, (title, lines) in enumerate(parts, 1))


def nth_day(k: int) -> date:
    """A date from 1900 to 2173, different for every k below 100,003 (a prime, so the step of 397 never repeats)."""
    return date(1900, 1, 1) + timedelta(days=397 * k % 100_003)


def summer_day(k: int) -> date:
    """A day between 10 May and 16 September, different for every k."""
    return date(2001 + k // 130, 5, 10) + timedelta(days=7 * k % 130)


def slavic_form(n: int, forms: tuple[str, str, str], one_repeats: bool) -> str:
    """The noun form after n: (one, few, many). In Russian 21, 31 ... take the form of 1; in Polish only 1 does."""
    few = n % 10 in (2, 3, 4) and n % 100 not in (12, 13, 14)
    one = n % 10 == 1 and n % 100 != 11 if one_repeats else n == 1
    return forms[0] if one else forms[1] if few else forms[2]


def english_date(d: date) -> str:
    return f"{d.day} {MONTHS_EN[d.month - 1]} {d.year}"


# --- English prose ---------------------------------------------------------------------------------------------------


def en_story(k: int) -> Sample:
    name = ("Maren", "Tobias", "Ilse", "Ruben", "Oona")[k % 5]
    place = ("the northern pier", "a salt-white headland", "the last island of the chain", "Gull Rock")[k // 5 % 4]
    object_ = ("a brass key", "a letter without a stamp", "a jar of blue glass beads")[k % 3]
    steps, trips = 90 + k, 3 + k % 4
    query = (
        f"Write a short scene about a lighthouse keeper called {name} at {place}. The tower has {steps} steps, climbed "
        f"{trips} times that night, and {object_} must matter. Keep it under 150 words."
    )
    reasoning = notes(
        ("Query parsing", [f"Scene, < 150 words. Keeper: {name}. Setting: {place}.", f"Must matter → {object_}."]),
        ("Numbers", [f"{trips} climbs × {steps} steps = {trips * steps} ● (up only; going down not counted)"]),
        ("Shape", ["- open on tiredness → sound → small discovery", "- end on a gesture, no moral ◐"]),
    )
    answer = (
        f"By midnight {name} had stopped counting the steps. There were {steps} of them, as there were every night, "
        f"and this was climb number {trips}: {trips * steps} steps upward since dusk, all for a lamp that would not "
        f"hold its flame.\n\nOutside, {place} lay black under the rain. Then something tapped on the stairs, once, "
        f"patiently, and rolled to rest against the keeper's boot. It was {object_}.\n\n“So you came back,” said "
        f"{name}, and set it on the sill, where the light would find it. The flame drew itself up. Far out, a ship "
        "that had been turning in circles straightened its course, and nobody aboard ever knew why."
    )
    return Sample("en", "creative writing", query, reasoning, answer)


def en_rag(k: int) -> Sample:
    place = ("Harrow Fell", "Pine Saddle", "Cold Ash", "Quarry Hill")[k % 4]
    year = 1801 + k
    nights = [21 + k % 9, 33 + k % 7, 18 + k % 11, 12 + k % 5]
    total = sum(nights)
    seed = (
        f"The ledger of the {place} observatory for {year} is brief. It counts {nights[0]} clear nights in spring, "
        f"{nights[1]} in summer, {nights[2]} in autumn and {nights[3]} in winter. The keeper adds that one clear night "
        "of each season was lost to repairs of the dome."
    )
    query = f"According to the ledger of {place}, on how many nights of {year} could anyone actually observe?"
    sums = " + ".join(map(str, nights))
    reasoning = notes(
        ("Query parsing", [f"Needed: usable nights in {year} (≠ clear nights).", "Source: the ledger passage only."]),
        ("Evidence", [f"- clear: {sums} = {total} ●", "- lost to repairs: 1 per season × 4 = 4 ●"]),
        ("Result", [f"{total} − 4 → **{total - 4}**. Cause of the repairs: not stated ○"]),
    )
    answer = (
        f"The observatory could be used on {total - 4} nights in {year}. The ledger counts {sums} = {total} clear "
        "nights, but one night of each season, four in all, was lost to repairs of the dome."
    )
    return Sample("en", "rag", query, reasoning, answer, seed)


def en_leap_year(k: int) -> Sample:
    year = 1600 + 7 * k
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    seed = (
        "In the Gregorian calendar a year is a leap year if it can be divided by 4. Years that end a century are the "
        "exception: they are leap years only if they can be divided by 400."
    )
    rests = ", ".join(f"{year} mod {m} = {year % m}" for m in (4, 100, 400))
    reasoning = notes(
        ("Query parsing", [f"Year = {year}; Gregorian rule, 3 tests."]),
        ("Tests", [rests, f"→ leap: {'yes' if leap else 'no'} ●"]),
    )
    answer = (
        f"{'Yes' if leap else 'No'}, {year} is {'a' if leap else 'not a'} leap year in the Gregorian calendar: "
        f"{rests}. February therefore has {29 if leap else 28} days, and the year has {366 if leap else 365}."
    )
    return Sample("en", "memorization", f"Was, or is, {year} a leap year? Say why.", reasoning, answer, seed)


def en_emoji(k: int) -> Sample:
    # The families and the flag are sequences of several code points; the counts below show that to the reader too.
    group = ("👨‍👩‍👧‍👦", "👩🏽‍💻", "🧑‍🚀", "👩‍❤️‍👩", "🏳️‍🌈")[k % 5]
    flag = ("🇫🇷", "🇵🇱", "🇯🇵", "🇧🇷", "🇰🇪", "🇨🇦", "🇮🇱")[k % 7]
    when, guests = english_date(summer_day(k + 3250)), 8 + k % 30
    query = f"Picnic on {when}, {guests} guests {group}{flag}. Please write me a cheerful invitation with emoji! 🙏"
    points = " ".join(f"U+{ord(c):04X}" for c in group)
    reasoning = notes(
        ("Query parsing", [f"Tone: cheerful 🎉. Facts: {when}, {guests} guests.", f"Reuse {group} and {flag}."]),
        ("Symbols", [f"- {group} = {points} → {len(group)} code points, 1 picture ●", "- keep the joiners intact ◐"]),
    )
    answer = (
        f"🎉 You're invited! 🎉\n\n📅 {when}\n📍 the big oak in the park 🌳\n👥 {guests} guests, {guests + 2} chairs "
        f"{group}\n\nBring a blanket 🧺, something to share 🥗🍉 and your loudest song 🎶. We bring {2 * guests} "
        f"sandwiches 🥪, two for everybody.\n\nSee you there! {flag}☀️👋🏿"
    )
    return Sample("en", "creative writing", query, reasoning, answer)


TOKENS = (
    ("<|end|>", "closes one message of a conversation, after which another message may follow"),
    ("<|return|>", "marks that the model has finished its final answer, so that sampling stops"),
    (
        "<|start|>assistant<|channel|>final<|message|>",
        "opens a message: the sender is the assistant, the channel is `final`, and the text follows",
    ),
    ("<|endoftext|>", "separates one document from the next in plain training text"),
    ("<|call|>", "ends a message that asks for a tool, so that the program can run the tool"),
    ("<|channel|>", "stands before the name of the channel a message belongs to"),
)


def en_special_tokens(k: int) -> Sample:
    token, meaning = TOKENS[k % len(TOKENS)]
    ticket, a, b = 1000 + k, 7 + k % 13, 5 + k % 17
    query = (
        f"A customer typed this into ticket #{ticket} and our bot cut it off:\n\n    Total: {a + b}{token} thanks\n\n"
        f"What does {token} mean in a chat format, and is it a problem when a user simply types it?"
    )
    reasoning = notes(
        ("Query parsing", [f"Ticket #{ticket}. Literal text `{token}` ({len(token)} characters) inside user input."]),
        (
            "What is known",
            [
                f"- in the format: {meaning} ●",
                "- typed by a user → ordinary characters, must not become control tokens ●",
                "- why the bot cut the text: probably parsed it as control ◐ (its code not shown ○)",
            ],
        ),
        ("Answer plan", ["meaning → risk → fix: encode content with special tokens switched off"]),
    )
    stored = json.dumps(f"Total: {a + b}{token} thanks")
    answer = (
        f"In the chat format, `{token}` {meaning}. A whole exchange looks like this:\n\n"
        f"<|start|>user<|message|>What is {a} + {b}?<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{a + b}<|return|>\n\n"
        f"When somebody types `{token}` into a ticket it is plain text of {len(token)} characters and should stay so. "
        "Encode the parts written by people with special tokens switched off, and let only your own template add the "
        f"control tokens. Stored as JSON, the line of ticket #{ticket} is {stored}."
    )
    return Sample("en", "memorization", query, reasoning, answer)


# --- French, German, Spanish, Italian, Dutch, Latin ------------------------------------------------------------------


def fr_oui_non(k: int) -> Sample:
    d = (3, 4, 7, 9)[k % 4]
    n = d * (50 + k) + (k // 2 % 2)  # a remainder of 0 and of 1 take turns
    quotient, rest = divmod(n, d)
    reasoning = notes(
        ("Analyse de la requête", [f"Question fermée sur {n} et {d} → réponse attendue : oui ou non."]),
        ("Calcul", [f"{n} = {d} × {quotient} + {rest}", f"reste {rest} → {'oui' if rest == 0 else 'non'} ●"]),
    )
    query = f"Le nombre {n} est-il divisible par {d} ? Répondez par oui ou par non."
    return Sample("fr", "mcq", query, reasoning, "Non." if rest else "Oui.", None, "Répondre en un seul mot.")


def fr_calendrier(k: int) -> Sample:
    d = nth_day(k)
    day = "1er" if d.day == 1 else str(d.day)
    text = f"{day} {MONTHS_FR[d.month - 1]} {d.year}"
    weekday = ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche")[d.weekday()]
    rank, left = d.timetuple().tm_yday, (date(d.year, 12, 31) - d).days
    ordinal = "1er" if rank == 1 else f"{rank}e"
    reasoning = notes(
        ("Analyse de la requête", [f"Date : {text} ({d.isoformat()}). Deux demandes : jour de la semaine, rang."]),
        ("Calcul", [f"- jour → {weekday} ●", f"- rang → {rank} ; jours restants → {left} ●"]),
    )
    rest = f"il reste {left} jours" if left > 1 else "il reste un jour" if left == 1 else "il ne reste aucun jour"
    answer = f"Le {text} tombe un {weekday}. C'est le {ordinal} jour de l'année ; {rest} jusqu'au 31 décembre."
    query = f"Quel jour de la semaine tombe le {text}, et quel est son rang dans l'année ?"
    return Sample("fr", "math exercise", query, reasoning, answer)


def fr_recette(k: int) -> Sample:
    base, wanted = 4, 5 + k % 6
    each = {"g de courge": 150 + k, "ml d'eau": 180 + 2 * k, "g de crème": 20 + k % 15}
    seed = f"Soupe de courge, pour {base} personnes : " + ", ".join(f"{base * v} {u}" for u, v in each.items()) + "."
    seed += " Faites cuire la courge dans l'eau pendant une demi-heure, mixez, puis ajoutez la crème hors du feu."
    pumpkin = base * each["g de courge"]
    query = f"La recette prévoit {pumpkin} g de courge pour {base} personnes. Que faut-il pour {wanted} personnes ?"
    lines = [f"- {base * v} ÷ {base} × {wanted} = {wanted * v} {u} ●" for u, v in each.items()]
    reasoning = notes(
        ("Analyse de la requête", [f"Proportionnalité : {base} → {wanted} personnes, facteur {wanted}/{base}."]),
        ("Calcul", lines),
        ("Réserve", ["Temps de cuisson : à peu près inchangé ◐"]),
    )
    answer = f"Pour {wanted} personnes, il faut :\n\n" + "\n".join(f"- {wanted * v} {u}" for u, v in each.items())
    return Sample("fr", "rag", query, reasoning, answer + "\n\nLa préparation reste la même.", seed)


def zahlwort(n: int) -> str:
    """The German numeral of 1 <= n < 10,000, written as one word."""
    ones = words(
        "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
        "siebzehn achtzehn neunzehn"
    )
    tens = words("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
    word = ones[n // 1000] + "tausend" if n >= 1000 else ""
    if n // 100 % 10:
        word += ones[n // 100 % 10] + "hundert"
    rest = n % 100
    if rest == 1:
        return word + "eins"
    if rest < 20:
        return word + (ones[rest] if rest else "")
    return word + (ones[rest % 10] + "und" if rest % 10 else "") + tens[rest // 10 - 2]


def de_zahlwort(k: int) -> Sample:
    n = 100 + 37 * k % 9883
    word = zahlwort(n)
    reasoning = notes(
        ("Anfrage", [f"Zahl {n} → Zahlwort, zusammen und klein geschrieben."]),
        ("Zerlegung", [" + ".join(f"{c}·{10 ** (len(str(n)) - 1 - p)}" for p, c in enumerate(str(n))), f"→ {word} ●"]),
    )
    answer = f"Die Zahl {n} heißt ausgeschrieben „{word}“. Das Wort hat {len(word)} Buchstaben."
    return Sample("de", "editing", f"Schreibe die Zahl {n} als deutsches Zahlwort.", reasoning, answer)


def de_rabatt(k: int) -> Sample:
    price, percent = 20 * (12 + k), (5, 10, 15, 20, 25)[k % 5]
    thing = ("Fahrrad", "Sofa", "Mikroskop", "Klavier")[k % 4]
    off = price * percent // 100  # exact: the price is a multiple of 20 and the rate of 5
    query = f"Ein {thing} kostet {price} Euro und wird um {percent} % reduziert. Wie viel kostet es danach?"
    reasoning = notes(
        ("Anfrage", [f"Grundwert {price} €, Prozentsatz {percent} % → gesucht: verminderter Grundwert."]),
        ("Rechnung", [f"- Nachlass: {price} · {percent} / 100 = {off} € ●", f"- {price} − {off} = {price - off} € ●"]),
    )
    answer = (
        f"Der Nachlass beträgt {percent} % von {price} €, also {off} €. Das {thing} kostet danach "
        f"{price} € − {off} € = **{price - off} €**."
    )
    return Sample("de", "math exercise", query, reasoning, answer)


def es_verbo(k: int) -> Sample:
    verbs = words("hablar cantar trabajar caminar estudiar cenar bailar viajar nadar cocinar")
    verb = verbs[(k + k // 600) % 10]  # the clock times below come round after 600
    tense, endings, frame = (
        ("presente", "o as a amos áis an", "Todos los días, a las {}, {} juntos."),
        ("pretérito imperfecto", "aba abas aba ábamos abais aban", "Antes, a las {}, {} juntos."),
        ("futuro simple", "é ás á emos éis án", "Mañana, a las {}, {} juntos."),
    )[k // 10 % 3]
    stem = verb if tense == "futuro simple" else verb[:-2]
    forms = [stem + e for e in endings.split()]
    minute = 8 * 60 + 7 * k % 600
    clock = f"{minute // 60}:{minute % 60:02d}"
    people = ("yo", "tú", "él / ella", "nosotros", "vosotros", "ellos / ellas")
    query = f"Conjuga «{verb}» en {tense} de indicativo y añade una frase de ejemplo en la que sean las {clock}."
    reasoning = notes(
        ("Consulta", [f"Verbo regular en -ar: {verb}; tiempo: {tense}; hora del ejemplo: {clock}."]),
        ("Formas", [f"raíz «{stem}-» + {', '.join('-' + e for e in endings.split())} ●"]),
    )
    table = "\n".join(f"| {p} | {f} |" for p, f in zip(people, forms, strict=True))
    answer = f"| persona | {tense} |\n|---|---|\n{table}\n\nEjemplo: {frame.format(clock, forms[3])}"
    return Sample("es", "memorization", query, reasoning, answer)


def es_tren(k: int) -> Sample:
    speed, minutes = (60, 90, 120)[k % 3], 40 + 2 * k
    distance = speed * minutes // 60  # exact: the minutes are even, and the speed is a multiple of 30
    start = 6 * 60 + 15 * (k % 40)
    end = start + minutes
    clock_in, clock_out = (f"{t // 60 % 24:02d}:{t % 60:02d}" for t in (start, end))
    days = end // 1440
    later = "" if days == 0 else " del día siguiente" if days == 1 else f", {days} días después"
    at = "la" if clock_out.startswith("01") else "las"  # one o'clock is singular
    query = f"Un tren sale a las {clock_in} y recorre {distance} km a una media de {speed} km/h. ¿A qué hora llega?"
    reasoning = notes(
        ("Consulta", [f"d = {distance} km, v = {speed} km/h, salida {clock_in} → hora de llegada."]),
        ("Cálculo", [f"t = {distance} / {speed} h = {minutes} min ●", f"{clock_in} + {minutes} min → {clock_out}"]),
    )
    answer = (
        f"El viaje dura {distance} ÷ {speed} horas, es decir, {minutes} minutos. "
        f"El tren llega a {at} {clock_out}{later}."
    )
    return Sample("es", "math exercise", query, reasoning, answer)


def it_film(k: int) -> Sample:
    minutes = 61 + k
    hours, rest = divmod(minutes, 60)
    end = 20 * 60 + 30 + minutes
    clock = f"{end // 60 % 24}:{end % 60:02d}"
    length = ("1 ora" if hours == 1 else f"{hours} ore") + (
        "" if rest == 0 else " e 1 minuto" if rest == 1 else f" e {rest} minuti"
    )
    query = f"Un film dura {minutes} minuti e comincia alle 20:30. Quante ore e minuti dura, e quando finisce?"
    at = f"all'{clock}" if clock.startswith("1:") else f"alle {clock}"  # one o'clock is singular
    reasoning = notes(
        ("Richiesta", [f"{minutes} min → ore e minuti; inizio 20:30 → fine."]),
        ("Calcolo", [f"{minutes} = {hours} × 60 + {rest} ●", f"20:30 + {length} → {clock} ●"]),
    )
    return Sample("it", "math exercise", query, reasoning, f"Il film dura {length} e finisce {at}.")


def nl_fiets(k: int) -> Sample:
    name, km, days = ("Anna", "Sanne", "Fatima")[k % 3], 3 + k % 9, 4 + k
    query = f"{name} fietst elke werkdag {km} km naar haar werk en weer terug. Hoeveel km is dat in {days} werkdagen?"
    reasoning = notes(
        ("Vraag", [f"Enkele reis {km} km, {days} werkdagen → totale afstand."]),
        ("Berekening", [f"heen + terug: 2 × {km} = {2 * km} km ●", f"{2 * km} × {days} = {2 * km * days} km ●"]),
    )
    answer = f"Per dag fietst {name} 2 × {km} = {2 * km} km. In {days} werkdagen is dat samen {2 * km * days} km."
    return Sample("nl", "math exercise", query, reasoning, answer)


def roman(n: int) -> str:
    """n (1 to 3,999) in Roman numerals."""
    out = ""
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    for value, letters in zip(values, words("M CM D CD C XC L XL X IX V IV I"), strict=True):
        out += letters * (n // value)
        n %= value
    return out


def la_numerus(k: int) -> Sample:
    n = 1 + 1009 * k % 3989
    digits = [int(c) * 10 ** (len(str(n)) - 1 - p) for p, c in enumerate(str(n)) if c != "0"]
    reasoning = notes(
        ("Quaestio", [f"Numerus: {n}. Quaeritur forma Romana."]),
        ("Partes", [f"- {part} = {roman(part)} ●" for part in digits]),
    )
    answer = f"Numerus {n} litteris Romanis sic scribitur: {roman(n)}."
    return Sample("la", "memorization", f"Quomodo numerus {n} litteris Romanis scribitur?", reasoning, answer)


# --- Polish, Russian -------------------------------------------------------------------------------------------------

POLISH = (
    ("plik", "pliki", "plików"),
    ("kot", "koty", "kotów"),
    ("książka", "książki", "książek"),
    ("okno", "okna", "okien"),
    ("godzina", "godziny", "godzin"),
)


def pl_liczebnik(k: int) -> Sample:
    n, forms = 1 + k, POLISH[k % 5]
    right = slavic_form(n, forms, one_repeats=False)
    rule = (
        "Przy liczbie 1 używamy mianownika liczby pojedynczej.",
        "Liczby zakończone na 2, 3 lub 4 (ale nie na 12, 13 ani 14) łączą się z mianownikiem liczby mnogiej.",
        "Ta liczba łączy się z dopełniaczem liczby mnogiej.",
    )[forms.index(right)]
    query = f"Która forma jest poprawna: „{n} {forms[0]}”, „{n} {forms[1]}” czy „{n} {forms[2]}”?"
    reasoning = notes(
        ("Analiza pytania", [f"Liczebnik {n}, rzeczownik „{forms[0]}” → właściwy przypadek."]),
        ("Reguła", [f"{n} mod 10 = {n % 10}, {n} mod 100 = {n % 100} → {right} ●", rule]),
    )
    return Sample("pl", "mcq", query, reasoning, f"Poprawna forma to „{n} {right}”. {rule}")


def pl_kartka(k: int) -> Sample:
    city = ("Krakowa", "Gdańska", "Torunia", "Zakopanego", "Wrocławia")[k % 5]
    who = ("Zosia", "Antek", "Hania")[k % 3]
    d = summer_day(k)
    when = f"{d.day} {MONTHS_PL[d.month - 1]} {d.year} r."
    warm, far = 18 + k % 14, 5 + k % 20
    degrees = slavic_form(warm, ("stopień", "stopnie", "stopni"), one_repeats=False)
    kilometres = slavic_form(far, ("kilometr", "kilometry", "kilometrów"), one_repeats=False)
    query = f"Napisz krótką kartkę do babci z {city}, z datą {when}; podpisz ją imieniem {who}."
    reasoning = notes(
        ("Analiza pytania", [f"Kartka do babci, miejsce: z {city}, data: {when}, podpis: {who}."]),
        ("Szczegóły", [f"- {warm} {degrees} w cieniu ◐ (zmyślone)", f"- spacer: {far} {kilometres} ◐ (zmyślone)"]),
    )
    answer = (
        f"{when}\n\nKochana Babciu,\n\nserdecznie pozdrawiam Cię z {city}! W cieniu mamy {warm} {degrees}. Wczoraj "
        f"przeszliśmy {far} {kilometres}, a dziś odpoczywamy i jemy lody. Szkoda, że Cię tu nie ma!\n\n"
        f"Ściskam mocno,\n{who}"
    )
    return Sample("pl", "creative writing", query, reasoning, answer)


RUSSIAN = (("год", "года", "лет"), ("книга", "книги", "книг"), ("яблоко", "яблока", "яблок"), ("час", "часа", "часов"))


def ru_forma(k: int) -> Sample:
    n, forms = 1 + k, RUSSIAN[k % 4]
    right = slavic_form(n, forms, one_repeats=True)
    query = f"Как правильно: «{n} {forms[0]}», «{n} {forms[1]}» или «{n} {forms[2]}»?"
    reasoning = notes(
        ("Разбор вопроса", [f"Число {n}, слово «{forms[0]}» → нужная форма."]),
        ("Правило", [f"последняя цифра {n % 10}, остаток от деления на 100: {n % 100} → {right} ●"]),
    )
    return Sample("ru", "mcq", query, reasoning, f"Правильно: «{n} {right}».")


# --- Right-to-left scripts, Hindi, Chinese, Japanese -----------------------------------------------------------------


def digits_in(n: int, zero: str) -> str:
    """n with the digits of the script whose zero is given (each script keeps its ten digits in order)."""
    return "".join(chr(ord(zero) + int(c)) for c in str(n))


def ar_kutub(k: int) -> Sample:
    # Both numbers stay within 11 to 99: there Arabic puts the counted noun in the accusative singular.
    a, b = 11 + k % 89, 11 + (3 * k + k // 89) % 89
    x, y, z = (digits_in(n, "٠") for n in (a, b, a * b))
    query = f"إذا كان ثمن الكتاب الواحد {x} دينارًا، فما ثمن {y} كتابًا؟"
    reasoning = notes(
        ("فهم السؤال", [f"ثمن الكتاب الواحد: {x}، عدد الكتب: {y} ← المطلوب: الثمن الإجمالي."]),
        ("الحساب", [f"{x} × {y} = {z} ●"]),
    )
    answer = f"نضرب ثمن الكتاب الواحد في عدد الكتب: {x} × {y} = {z}. إذن الثمن الإجمالي بالدينار هو {z}."
    return Sample("ar", "math exercise", query, reasoning, answer)


GEMATRIA = dict(
    zip(
        "אבגדהוזחטיכלמנסעפצקרשתךםןףץ",
        (*range(1, 10), *range(10, 100, 10), 100, 200, 300, 400, 20, 40, 50, 80, 90),
        strict=True,
    )
)


def he_gematria(k: int) -> Sample:
    word = words("שלום אמת חיים אור ספר בית ילד עץ מים שמש ירח דרך")[k % 12]
    value, plus = sum(GEMATRIA[c] for c in word), 10 + k
    query = f"חשבו את הגימטריה של המילה «{word}» והוסיפו לה {plus}."
    reasoning = notes(
        ("ניתוח השאלה", [f"מילה: {word}; תוספת: {plus}."]),
        ("חישוב", [f"- {c} = {GEMATRIA[c]} ●" for c in word] + [f"סכום: {value}; {value} + {plus} = {value + plus}"]),
    )
    answer = f"הגימטריה של «{word}» היא {value}. כשמוסיפים לה {plus} מקבלים {value + plus}."
    return Sample("he", "math exercise", query, reasoning, answer)


def hi_pensil(k: int) -> Sample:
    a, b = 5 + k % 8, 11 + k
    x, y, z = (digits_in(n, "०") for n in (a, b, a * b))
    query = f"एक डिब्बे में {x} पेंसिलें हैं। ऐसे {y} डिब्बों में कुल कितनी पेंसिलें होंगी?"
    reasoning = notes(
        ("प्रश्न की समझ", [f"एक डिब्बा → {x} पेंसिलें; डिब्बे: {y}।"]),
        ("गणना", [f"{x} × {y} = {z} ●"]),
    )
    return Sample("hi", "math exercise", query, reasoning, f"ऐसे {y} डिब्बों में कुल {x} × {y} = {z} पेंसिलें होंगी।")


def chinese_number(n: int) -> str:
    """The Chinese numeral of 100 <= n < 10,000; one 零 stands for each run of zeros inside it."""
    out = ""
    for place, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // place % 10
        if digit:
            out += "零一二三四五六七八九"[digit] + unit
        elif out and n % place and not out.endswith("零"):
            out += "零"
    return out


def zh_shuzi(k: int) -> Sample:
    n = 100 + 101 * k % 9887
    word = chinese_number(n)
    reasoning = notes(
        ("理解问题", [f"把 {n} 写成中文数字。"]),
        ("逐位分析", [f"- 从左起第{'一二三四'[p]}位：{c}" for p, c in enumerate(str(n))] + [f"→ {word} ●"]),
    )
    return Sample("zh", "editing", f"请把阿拉伯数字 {n} 写成中文数字。", reasoning, f"{n} 写作“{word}”。")


def ja_wareki(k: int) -> Sample:
    d = date(1927, 1, 1) + timedelta(days=211 * k % 36_000)
    era, first = next(
        (name, start)
        for name, start in (("令和", date(2019, 5, 1)), ("平成", date(1989, 1, 8)), ("昭和", date(1926, 12, 25)))
        if d >= start
    )
    number = d.year - first.year + 1
    year = "元" if number == 1 else str(number)  # the first year of an era is not written with a numeral
    western, weekday = f"西暦{d.year}年{d.month}月{d.day}日", "月火水木金土日"[d.weekday()]
    reasoning = notes(
        ("質問の整理", [f"{western} → 元号と曜日。"]),
        (
            "計算",
            [f"- {era}は{first.year}年{first.month}月{first.day}日から ●", f"- {d.year} − {first.year} + 1 → {year}"],
        ),
    )
    query = f"{western}は和暦で何年何月何日ですか。曜日も教えてください。"
    answer = f"{western}は、和暦では{era}{year}年{d.month}月{d.day}日で、{weekday}曜日です。"
    return Sample("ja", "memorization", query, reasoning, answer)


TEXT_FAMILIES: tuple[Family, ...] = (
    en_story, fr_oui_non, en_special_tokens, de_zahlwort, ar_kutub, en_rag, es_verbo, pl_liczebnik,
    en_emoji, zh_shuzi, fr_calendrier, he_gematria, it_film, en_leap_year, ja_wareki, de_rabatt,
    es_tren, la_numerus, pl_kartka, nl_fiets, ru_forma, hi_pensil, fr_recette,
)  # fmt: skip
