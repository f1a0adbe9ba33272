"""Text as samples: the next letter from those before it; and short texts in four languages."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from biloop.data.samples import Samples

LETTERS = " abcdefghijklmnopqrstuvwxyz"
"""The classes: a space, which stands for all that is no letter, and the letters without accents."""
_ACCENTS = str.maketrans("àâäçèéêëîïôöùûüœæß", "aaaceeeeiioouuuoas")


def next_letters(text: str, *, context: int = 3) -> Samples:
    """A sample for each letter: which of `LETTERS` it is, and the `context` letters before it.

    X has a group of 27 columns for each place before the letter, the nearest first, with a one for
    the letter there, and a last column of ones. Runs of other characters are one space.

    Parameters
    ----------
    text : str
    context : int
        How many letters before.

    Examples
    --------
    >>> bl.data.next_letters("four score and seven", context=2).X.shape[1]
    55
    """
    if not isinstance(context, int) or isinstance(context, bool) or context < 0:
        raise ValueError(f"context must be an integer of at least 0, got {context!r}.")
    codes = _codes(text)
    n = len(codes) - context
    if n < 1:
        raise ValueError(f"A text of {len(codes)} letters has none after {context} others.")
    one_hot = np.eye(len(LETTERS), dtype=np.float32)
    before = [one_hot[codes[context - back : context - back + n]] for back in range(1, context + 1)]
    return Samples(np.hstack([*before, np.ones((n, 1), np.float32)]), codes[context:])


def _codes(text: str) -> np.ndarray:
    """The places of the letters of a text in `LETTERS`, a single space for all between words."""
    lowered = text.lower().translate(_ACCENTS)
    words = "".join(c if c in LETTERS else " " for c in lowered).split()
    return np.array([LETTERS.index(c) for c in " ".join(words)], np.int32)


def fragments() -> Mapping[str, str]:
    """Beginnings of texts in the public domain: two in English, one each in three others.

    Shakespeare, Sonnet 18; Lincoln, Gettysburg Address; Goethe, Faust; La Fontaine, Le Corbeau et
    le Renard; Caesar, De bello Gallico.

    Examples
    --------
    >>> len(bl.data.fragments())
    5
    """
    return _FRAGMENTS


_FRAGMENTS = MappingProxyType(
    {
        "Shakespeare": """
Shall I compare thee to a summer's day? Thou art more lovely and more temperate: Rough winds do
shake the darling buds of May, And summer's lease hath all too short a date: Sometime too hot the
eye of heaven shines, And often is his gold complexion dimm'd; And every fair from fair sometime
declines, By chance or nature's changing course untrimm'd; But thy eternal summer shall not fade
Nor lose possession of that fair thou owest; Nor shall Death brag thou wander'st in his shade, When
in eternal lines to time thou growest: So long as men can breathe or eyes can see, So long lives
this, and this gives life to thee.""",
        "Goethe": """
Habe nun, ach! Philosophie, Juristerei und Medizin, Und leider auch Theologie Durchaus studiert, mit
heißem Bemühn. Da steh ich nun, ich armer Tor! Und bin so klug als wie zuvor; Heiße Magister, heiße
Doktor gar Und ziehe schon an die zehen Jahr Herauf, herab und quer und krumm Meine Schüler an der
Nase herum, Und sehe, daß wir nichts wissen können! Das will mir schier das Herz verbrennen. Zwar
bin ich gescheiter als all die Laffen, Doktoren, Magister, Schreiber und Pfaffen; Mich plagen keine
Skrupel noch Zweifel, Fürchte mich weder vor Hölle noch Teufel.""",
        "La Fontaine": """
Maître Corbeau, sur un arbre perché, Tenait en son bec un fromage. Maître Renard, par l'odeur
alléché, Lui tint à peu près ce langage: Et bonjour, Monsieur du Corbeau. Que vous êtes joli! que
vous me semblez beau! Sans mentir, si votre ramage Se rapporte à votre plumage, Vous êtes le Phénix
des hôtes de ces bois. À ces mots, le Corbeau ne se sent pas de joie; Et pour montrer sa belle voix,
Il ouvre un large bec, laisse tomber sa proie. Le Renard s'en saisit, et dit: Mon bon Monsieur,
Apprenez que tout flatteur Vit aux dépens de celui qui l'écoute.""",
        "Caesar": """
Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae, aliam Aquitani, tertiam qui
ipsorum lingua Celtae, nostra Galli appellantur. Hi omnes lingua, institutis, legibus inter se
differunt. Gallos ab Aquitanis Garumna flumen, a Belgis Matrona et Sequana dividit. Horum omnium
fortissimi sunt Belgae, propterea quod a cultu atque humanitate provinciae longissime absunt,
minimeque ad eos mercatores saepe commeant atque ea quae ad effeminandos animos pertinent
important, proximique sunt Germanis, qui trans Rhenum incolunt, quibuscum continenter bellum
gerunt.""",
        "Lincoln": """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived
in Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in
a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can
long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of
that field, as a final resting place for those who here gave their lives that that nation might
live. It is altogether fitting and proper that we should do this.""",
    }
)
