"""What the page says, in every language that it speaks: those of the inbox (`live/static/words.js`)."""

# ruff: noqa: RUF001 - French and Japanese have punctuation of their own

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
FR: Words = {
    "title": "Vos messages",
    "lead": "Choisissez ce que vous voulez recevoir, et où.",
    "saved": "Vos choix sont enregistrés.",
    "left": "Vous ne recevrez plus {category} par {channel}.",
    "leave_title": "Ne plus recevoir {category} par {channel} ?",
    "leave": "Se désabonner",
    "choices": "Ce que vous recevez",
    "always": "Toujours actif : vous avez besoin de ces messages.",
    "nothing": "Il n’y a encore rien à choisir.",
    "language": "Langue",
    "any_language": "Comme l’expéditeur le choisit",
    "time_zone": "Fuseau horaire",
    "any_zone": "Non défini",
    "quiet": "Heures de silence",
    "quiet_help": "Les messages qui peuvent attendre arrivent ensuite. Laissez les heures vides pour ne pas en avoir.",
    "from": "De",
    "to": "À",
    "days": "Les soirs de",
    "holidays": "Aussi les jours fériés de",
    "no_holidays": "Aucun",
    "save": "Enregistrer",
    "nothing_else": "Tout arrêter",
    "all_help": "Désactive tous les messages qui peuvent l’être.",
    "over_title": "Ce lien ne fonctionne plus",
    "over": "Il est trop ancien, ou il n’a pas été copié en entier. Ouvrez le message le plus récent et utilisez "
    "son lien, ou demandez-en un nouveau à l’expéditeur.",
    "wrong": "Quelque chose n’est pas correct dans le formulaire : {what}. Rien n’a été modifié.",
    "email": "E-mail",
    "sms": "SMS",
    "push": "Push",
    "inApp": "Dans l’application",
    "sse": "En direct",
}
PT: Words = {
    "title": "As suas mensagens",
    "lead": "Escolha o que quer receber, e onde.",
    "saved": "As suas escolhas estão guardadas.",
    "left": "Já não vai receber {category} por {channel}.",
    "leave_title": "Não receber mais {category} por {channel}?",
    "leave": "Cancelar a subscrição",
    "choices": "O que recebe",
    "always": "Sempre ativo: precisa destas mensagens.",
    "nothing": "Ainda não há nada para escolher.",
    "language": "Idioma",
    "any_language": "Como o remetente escolher",
    "time_zone": "Fuso horário",
    "any_zone": "Não definido",
    "quiet": "Horas de silêncio",
    "quiet_help": "As mensagens que podem esperar chegam depois. Deixe as duas horas vazias se não as quiser.",
    "from": "De",
    "to": "Até",
    "days": "Nas noites de",
    "holidays": "Também nos feriados de",
    "no_holidays": "Nenhum",
    "save": "Guardar",
    "nothing_else": "Cancelar tudo",
    "all_help": "Desativa todas as mensagens que podem ser desativadas.",
    "over_title": "Esta ligação já não funciona",
    "over": "É demasiado antiga ou não foi copiada por inteiro. Abra a mensagem mais recente e use a ligação "
    "que lá está, ou peça uma nova ao remetente.",
    "wrong": "Algo no formulário não está certo: {what}. Nada foi alterado.",
    "email": "E-mail",
    "sms": "SMS",
    "push": "Push",
    "inApp": "Na aplicação",
    "sse": "Em direto",
}
JA: Words = {
    "title": "メッセージの設定",
    "lead": "受け取る内容と方法を選んでください。",
    "saved": "設定を保存しました。",
    "left": "今後、{channel}で{category}は届きません。",
    "leave_title": "{channel}での{category}の受信を停止しますか？",
    "leave": "配信停止",
    "choices": "受け取る内容",
    "always": "常にオン：必要なメッセージです。",
    "nothing": "選べる項目はまだありません。",
    "language": "言語",
    "any_language": "送信者の設定に従う",
    "time_zone": "タイムゾーン",
    "any_zone": "未設定",
    "quiet": "通知を控える時間",
    "quiet_help": "急ぎでないメッセージは、この時間の後に届きます。不要な場合は両方の時刻を空にしてください。",
    "from": "開始",
    "to": "終了",
    "days": "対象の曜日",
    "holidays": "祝日も対象にする",
    "no_holidays": "なし",
    "save": "保存",
    "nothing_else": "すべて停止",
    "all_help": "停止できるメッセージをすべてオフにします。",
    "over_title": "このリンクは無効です",
    "over": "期限が切れているか、全体がコピーされていません。最新のメッセージのリンクを開くか、"
    "送信者に新しいリンクを依頼してください。",
    "wrong": "フォームに正しくない項目があります：{what}。何も変更されていません。",
    "email": "メール",
    "sms": "SMS",
    "push": "プッシュ通知",
    "inApp": "アプリ内",
    "sse": "ライブ",
}
SPOKEN: Mapping[str, Words] = {"en": EN, "de": DE, "es": ES, "fr": FR, "pt": PT, "ar": AR, "ja": JA}


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
