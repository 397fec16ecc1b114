"""What the page says, in every language that it speaks."""

from collections.abc import Mapping
from typing import Any

from babel import Locale, UnknownLocaleError

from carillon.domain.templates import parse_accept_language

Words = Mapping[str, str]

EN: Words = {
    "title": "Your messages",
    "lead": "Choose what you want to receive, and where.",
    "saved": "Your choices are saved.",
    "left": "You will not get {category} by {channel} any more.",
    "leave_title": "No more {category} by {channel}?",
    "leave": "Unsubscribe",
    "choices": "What you receive",
    "always": "Always on: you need these messages.",
    "nothing": "There is nothing to choose yet.",
    "language": "Language",
    "any_language": "As the sender chooses",
    "time_zone": "Time zone",
    "any_zone": "Not set",
    "quiet": "Quiet hours",
    "quiet_help": "Messages that can wait arrive after them. Leave both times empty for no quiet hours.",
    "from": "From",
    "to": "To",
    "days": "On the evenings of",
    "holidays": "Also on the holidays of",
    "no_holidays": "None",
    "save": "Save",
    "nothing_else": "Leave everything",
    "all_help": "Switches every message off that can be switched off.",
    "over_title": "This link does not work any more",
    "over": "It is too old, or it was not copied as a whole. Open the newest message and use the link there, "
    "or ask the sender for a new one.",
    "wrong": "Something in the form is not right: {what}. Nothing was changed.",
    "email": "Email",
    "sms": "Text message",
    "push": "Push",
    "inApp": "In the app",
    "sse": "Live",
}
DE: Words = {
    "title": "Ihre Nachrichten",
    "lead": "Wählen Sie, was Sie erhalten möchten, und wo.",
    "saved": "Ihre Auswahl ist gespeichert.",
    "left": "Sie erhalten {category} nicht mehr per {channel}.",
    "leave_title": "{category} nicht mehr per {channel}?",
    "leave": "Abmelden",
    "choices": "Was Sie erhalten",
    "always": "Immer an: Diese Nachrichten brauchen Sie.",
    "nothing": "Es gibt noch nichts zu wählen.",
    "language": "Sprache",
    "any_language": "Wie der Absender wählt",
    "time_zone": "Zeitzone",
    "any_zone": "Nicht gesetzt",
    "quiet": "Ruhezeit",
    "quiet_help": "Nachrichten, die warten können, kommen danach. Ohne Zeiten gibt es keine Ruhezeit.",
    "from": "Von",
    "to": "Bis",
    "days": "An den Abenden von",
    "holidays": "Auch an den Feiertagen von",
    "no_holidays": "Keine",
    "save": "Speichern",
    "nothing_else": "Alles abbestellen",
    "all_help": "Schaltet jede Nachricht ab, die sich abschalten lässt.",
    "over_title": "Dieser Link gilt nicht mehr",
    "over": "Er ist zu alt oder wurde nicht ganz kopiert. Öffnen Sie die neueste Nachricht und nehmen Sie den Link "
    "darin, oder bitten Sie den Absender um einen neuen.",
    "wrong": "Im Formular stimmt etwas nicht: {what}. Nichts wurde geändert.",
    "email": "E-Mail",
    "sms": "SMS",
    "push": "Push",
    "inApp": "In der App",
    "sse": "Live",
}
ES: Words = {
    "title": "Sus mensajes",
    "lead": "Elija qué quiere recibir y dónde.",
    "saved": "Sus preferencias están guardadas.",
    "left": "Ya no recibirá {category} por {channel}.",
    "leave_title": "¿No recibir más {category} por {channel}?",
    "leave": "Darse de baja",
    "choices": "Qué recibe",
    "always": "Siempre activo: necesita estos mensajes.",
    "nothing": "Todavía no hay nada que elegir.",
    "language": "Idioma",
    "any_language": "Como elija el remitente",
    "time_zone": "Zona horaria",
    "any_zone": "Sin definir",
    "quiet": "Horas de silencio",
    "quiet_help": "Los mensajes que pueden esperar llegan después. Deje las horas vacías si no las quiere.",
    "from": "Desde",
    "to": "Hasta",
    "days": "Las noches de",
    "holidays": "También los festivos de",
    "no_holidays": "Ninguno",
    "save": "Guardar",
    "nothing_else": "Darse de baja de todo",
    "all_help": "Desactiva todos los mensajes que se pueden desactivar.",
    "over_title": "Este enlace ya no funciona",
    "over": "Es demasiado antiguo o no se copió entero. Abra el mensaje más reciente y use su enlace, "
    "o pida uno nuevo al remitente.",
    "wrong": "Algo en el formulario no es correcto: {what}. No se ha cambiado nada.",
    "email": "Correo",
    "sms": "SMS",
    "push": "Push",
    "inApp": "En la aplicación",
    "sse": "En vivo",
}
AR: Words = {
    "title": "رسائلك",
    "lead": "اختر ما تريد أن تتلقاه، وأين تتلقاه.",
    "saved": "تم حفظ اختياراتك.",
    "left": "لن تتلقى {category} عبر {channel} بعد الآن.",
    "leave_title": "إيقاف {category} عبر {channel}؟",
    "leave": "إلغاء الاشتراك",
    "choices": "ما تتلقاه",
    "always": "مفعّلة دائمًا: أنت بحاجة إلى هذه الرسائل.",
    "nothing": "لا يوجد ما يمكن اختياره بعد.",
    "language": "اللغة",
    "any_language": "كما يختار المرسل",
    "time_zone": "المنطقة الزمنية",
    "any_zone": "غير محددة",
    "quiet": "ساعات الهدوء",
    "quiet_help": "الرسائل التي يمكن تأجيلها تصل بعدها. اترك الوقتين فارغين إذا كنت لا تريد ساعات هدوء.",
    "from": "من",
    "to": "إلى",
    "days": "في مساء أيام",
    "holidays": "أيام العطل",
    "no_holidays": "لا شيء",
    "save": "حفظ",
    "nothing_else": "إلغاء كل شيء",
    "all_help": "يوقف كل رسالة يمكن إيقافها.",
    "over_title": "هذا الرابط لم يعد يعمل",
    "over": "انتهت صلاحيته أو لم يُنسخ كاملًا. افتح أحدث رسالة واستخدم الرابط الموجود فيها، "
    "أو اطلب رابطًا جديدًا من المرسل.",
    "wrong": "هناك خطأ في النموذج: {what}. لم يتغير شيء.",
    "email": "البريد الإلكتروني",
    "sms": "رسالة نصية",
    "push": "إشعار",
    "inApp": "داخل التطبيق",
    "sse": "مباشر",
}
SPOKEN: Mapping[str, Words] = {"en": EN, "de": DE, "es": ES, "ar": AR}


def spoken(*wished: str | None, header: str | None = None) -> Locale:
    """The first language that the page speaks: the person's, the browser's, the tenant's."""
    first, *others = wished
    tags = [first, *parse_accept_language(header or ""), *others]
    for tag in tags:
        locale = read_locale(tag or "")
        if locale is not None and locale.language in SPOKEN:
            return locale
    return Locale("en")


def read_locale(tag: str) -> Locale | None:
    """The locale of a tag such as `pt-BR`; None for one that nobody speaks."""
    try:
        return Locale.parse(tag, sep="-")
    except (ValueError, UnknownLocaleError, TypeError):
        return None


def words_of(locale: Locale) -> Words:
    return SPOKEN[str(locale.language)]


def weekdays(locale: Locale) -> list[str]:
    """The names of the days, from Monday on."""
    names: Mapping[int, Any] = locale.days["stand-alone"]["wide"]
    return [str(names[number]) for number in range(7)]


def language_name(tag: str, locale: Locale) -> str:
    """A language by its own name, and by the reader's where that differs."""
    found = read_locale(tag)
    if found is None:
        return tag
    own, ours = found.get_display_name(found) or tag, found.get_display_name(locale) or tag
    return own if own.casefold() == ours.casefold() else f"{own} ({ours})"
