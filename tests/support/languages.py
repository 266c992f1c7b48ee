"""Texts in several languages and scripts, as strategies for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

SENTENCES = {
    "English": ("The bow should be slow and heavy near the bridge.", "Practise bar 12 twice a day, without vibrato."),
    "German": (
        "Die Bogengeschwindigkeit bestimmt die Lautstärke.",
        "Übe die schwierigen Lagenwechsel täglich zweimal.",
    ),
    "French": (
        "L'archet doit être lent et lourd près du chevalet.",
        "Travaille la mesure 12 deux fois par jour, d'abord.",
    ),
    "Spanish": (
        "¿Qué digitación prefieres en la tercera posición?",
        "Estudia cada mañana el compás número doce, despacio.",
    ),
    "Polish": (
        "Smyczek powinien być wolny i ciężki przy podstawku.",
        "Ćwicz dwunasty takt dwa razy dziennie, bez wibracji.",
    ),
    "Finnish": (
        "Jousen pitäisi kulkea hitaasti ja raskaasti tallan luona.",
        "Harjoittele vaikeimpia asemanvaihtoja päivittäin.",
    ),
    "Russian": (
        "Смычок должен двигаться медленно у подставки.",
        "Повторяй двенадцатый такт дважды в день без вибрато.",
    ),
    "Greek": ("Το δοξάρι πρέπει να κινείται αργά κοντά στη γέφυρα.", "Μελέτησε το δωδέκατο μέτρο δύο φορές την ημέρα."),
    "Chinese": ("琴弓在琴码附近应该又慢又沉。", "每天把第十二小节练习两遍，先不要揉弦。"),
    "Japanese": (
        "弓は駒の近くでゆっくり重く動かしてください。",
        "第十二小節を毎日二回、ビブラートなしで練習しましょう。",
    ),
    "Korean": ("활은 브리지 근처에서 느리고 무겁게 움직여야 합니다.", "열두 번째 마디를 매일 두 번씩 연습하세요."),
    "Arabic": ("يجب أن يتحرك القوس ببطء بالقرب من الجسر.", "تدرب على المازورة الثانية عشرة مرتين كل يوم."),
    "Hindi": ("गज को घुड़च के पास धीरे और भारी चलना चाहिए।", "बारहवें माप का हर दिन दो बार अभ्यास करें।"),
    "Thai": ("คันชักควรเคลื่อนช้าและหนักใกล้หย่อง", "ฝึกห้องที่สิบสองวันละสองครั้งโดยไม่ใช้ไวบราโต"),
}
"""Two sentences in each language."""


@st.composite
def draw_answer(draw: st.DrawFn) -> str:
    """Draw an answer in one language: paragraphs, headings, list items and bold beginnings."""
    sentences = SENTENCES[draw(st.sampled_from(sorted(SENTENCES)))]
    shapes = st.sampled_from(["{}", "{} {}", "## {}", "- {}", "1. {}", "  - {}", "**{}** {}", "> {}"])
    lines = draw(st.lists(shapes, min_size=1, max_size=12))
    return "\n\n".join(line.format(*draw(st.permutations(sentences))) for line in lines)


def draw_question() -> st.SearchStrategy[str]:
    """Return a strategy for questions in one language, short and long."""
    return st.builds(
        lambda pair, times: " ".join(pair * times), st.sampled_from(sorted(SENTENCES.values())), st.integers(1, 4)
    )
