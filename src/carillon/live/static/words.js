// The words of the inbox; `element.words = {empty: "…"}` replaces single ones.

const WORDS = {
  en: {
    title: "Notifications", unread: "{n} unread", inbox: "Inbox", archive: "Archive", all: "Mark all as read", read: "Mark as read",
    notRead: "Unread", unreadAgain: "Mark as unread", put: "Archive", back: "Move to inbox", more: "Load more", close: "Close", goBack: "Back",
    settings: "Preferences", empty: "You are all caught up", emptyText: "New notifications appear here as they come.",
    emptyArchive: "Nothing is archived", emptyArchiveText: "What you archive stays here.", offline: "No connection. Trying again…",
    failed: "That did not work. Try again.", archivedOne: "Archived", undo: "Undo", fresh: "New: {title}", always: "Always on",
    settingsText: "Choose what reaches you, and how.", noChoice: "There is nothing to choose here.", saved: "Saved", loading: "Loading",
    signedOut: "You are signed out", signedOutText: "Sign in again to see your notifications.",
    email: "Email", sms: "Text message", push: "Push", inApp: "In the app", sse: "In the app",
  },
  de: {
    title: "Mitteilungen", unread: "{n} ungelesen", inbox: "Eingang", archive: "Archiv", all: "Alle als gelesen markieren", read: "Als gelesen markieren",
    notRead: "Ungelesen", unreadAgain: "Als ungelesen markieren", put: "Archivieren", back: "Zurück in den Eingang", more: "Mehr laden", close: "Schließen", goBack: "Zurück",
    settings: "Einstellungen", empty: "Alles gelesen", emptyText: "Neue Mitteilungen erscheinen hier sofort.",
    emptyArchive: "Das Archiv ist leer", emptyArchiveText: "Was Sie archivieren, bleibt hier.", offline: "Keine Verbindung. Neuer Versuch …",
    failed: "Das hat nicht geklappt. Bitte noch einmal.", archivedOne: "Archiviert", undo: "Rückgängig", fresh: "Neu: {title}", always: "Immer an",
    settingsText: "Wählen Sie, was Sie erreicht und wie.", noChoice: "Hier gibt es nichts zu wählen.", saved: "Gespeichert", loading: "Wird geladen",
    signedOut: "Sie sind abgemeldet", signedOutText: "Melden Sie sich wieder an, um Ihre Mitteilungen zu sehen.",
    email: "E-Mail", sms: "SMS", push: "Push", inApp: "In der App", sse: "In der App",
  },
  es: {
    title: "Notificaciones", unread: "{n} sin leer", inbox: "Bandeja", archive: "Archivo", all: "Marcar todo como leído", read: "Marcar como leída",
    notRead: "Sin leer", unreadAgain: "Marcar como no leída", put: "Archivar", back: "Devolver a la bandeja", more: "Cargar más", close: "Cerrar", goBack: "Volver",
    settings: "Preferencias", empty: "Está al día", emptyText: "Las nuevas notificaciones aparecen aquí al instante.",
    emptyArchive: "No hay nada archivado", emptyArchiveText: "Lo que archive se queda aquí.", offline: "Sin conexión. Reintentando…",
    failed: "No ha funcionado. Inténtelo de nuevo.", archivedOne: "Archivada", undo: "Deshacer", fresh: "Nueva: {title}", always: "Siempre activa",
    settingsText: "Elija qué le llega y cómo.", noChoice: "Aquí no hay nada que elegir.", saved: "Guardado", loading: "Cargando",
    signedOut: "Su sesión ha terminado", signedOutText: "Inicie sesión de nuevo para ver sus notificaciones.",
    email: "Correo", sms: "SMS", push: "Push", inApp: "En la aplicación", sse: "En la aplicación",
  },
  fr: {
    title: "Notifications", unread: "{n} non lues", unreadOne: "{n} non lue", inbox: "Réception", archive: "Archives", all: "Tout marquer comme lu", read: "Marquer comme lue",
    notRead: "Non lue", unreadAgain: "Marquer comme non lue", put: "Archiver", back: "Remettre en réception", more: "Afficher plus", close: "Fermer", goBack: "Retour",
    settings: "Préférences", empty: "Vous êtes à jour", emptyText: "Les nouvelles notifications apparaissent ici aussitôt.",
    emptyArchive: "Aucune archive", emptyArchiveText: "Ce que vous archivez reste ici.", offline: "Pas de connexion. Nouvel essai…",
    failed: "Cela n’a pas marché. Réessayez.", archivedOne: "Archivée", undo: "Annuler", fresh: "Nouvelle : {title}", always: "Toujours active",
    settingsText: "Choisissez ce qui vous parvient, et comment.", noChoice: "Il n’y a rien à choisir ici.", saved: "Enregistré", loading: "Chargement",
    signedOut: "Votre session est terminée", signedOutText: "Reconnectez-vous pour voir vos notifications.",
    email: "E-mail", sms: "SMS", push: "Push", inApp: "Dans l’application", sse: "Dans l’application",
  },
  pt: {
    title: "Notificações", unread: "{n} por ler", inbox: "Entrada", archive: "Arquivo", all: "Marcar tudo como lido", read: "Marcar como lida",
    notRead: "Por ler", unreadAgain: "Marcar como não lida", put: "Arquivar", back: "Devolver à entrada", more: "Carregar mais", close: "Fechar", goBack: "Voltar",
    settings: "Preferências", empty: "Está tudo em dia", emptyText: "As novas notificações aparecem aqui de imediato.",
    emptyArchive: "Não há nada arquivado", emptyArchiveText: "O que arquivar fica aqui.", offline: "Sem ligação. A tentar de novo…",
    failed: "Não funcionou. Tente de novo.", archivedOne: "Arquivada", undo: "Anular", fresh: "Nova: {title}", always: "Sempre ativa",
    settingsText: "Escolha o que recebe, e como.", noChoice: "Não há nada para escolher aqui.", saved: "Guardado", loading: "A carregar",
    signedOut: "A sua sessão terminou", signedOutText: "Inicie sessão de novo para ver as suas notificações.",
    email: "E-mail", sms: "SMS", push: "Push", inApp: "Na aplicação", sse: "Na aplicação",
  },
  ar: {
    title: "الإشعارات", unread: "{n} غير مقروءة", inbox: "الوارد", archive: "الأرشيف", all: "تعليم الكل كمقروء", read: "تعليم كمقروء",
    notRead: "غير مقروءة", unreadAgain: "تعليم كغير مقروء", put: "أرشفة", back: "إعادة إلى الوارد", more: "عرض المزيد", close: "إغلاق", goBack: "رجوع",
    settings: "التفضيلات", empty: "لا جديد لديك", emptyText: "تظهر الإشعارات الجديدة هنا فور وصولها.",
    emptyArchive: "الأرشيف فارغ", emptyArchiveText: "ما تؤرشفه يبقى هنا.", offline: "لا يوجد اتصال. تجري إعادة المحاولة…",
    failed: "لم ينجح ذلك. حاول مرة أخرى.", archivedOne: "تمت الأرشفة", undo: "تراجع", fresh: "جديد: {title}", always: "مفعّل دائمًا",
    settingsText: "اختر ما يصلك وكيف يصلك.", noChoice: "لا يوجد ما يمكن اختياره هنا.", saved: "تم الحفظ", loading: "جارٍ التحميل",
    signedOut: "انتهت جلستك", signedOutText: "سجّل الدخول مرة أخرى لعرض إشعاراتك.",
    email: "البريد الإلكتروني", sms: "رسالة نصية", push: "إشعار فوري", inApp: "داخل التطبيق", sse: "داخل التطبيق",
  },
  ja: {
    title: "お知らせ", unread: "未読 {n} 件", inbox: "受信箱", archive: "アーカイブ", all: "すべて既読にする", read: "既読にする",
    notRead: "未読", unreadAgain: "未読にする", put: "アーカイブする", back: "受信箱に戻す", more: "もっと見る", close: "閉じる", goBack: "戻る",
    settings: "設定", empty: "新しいお知らせはありません", emptyText: "届いたお知らせはすぐここに表示されます。",
    emptyArchive: "アーカイブは空です", emptyArchiveText: "アーカイブしたお知らせはここに残ります。", offline: "接続できません。再試行しています…",
    failed: "うまくいきませんでした。もう一度お試しください。", archivedOne: "アーカイブしました", undo: "元に戻す", fresh: "新着: {title}", always: "常にオン",
    settingsText: "受け取る内容と方法を選べます。", noChoice: "選べる項目はありません。", saved: "保存しました", loading: "読み込み中",
    signedOut: "ログアウトしています", signedOutText: "お知らせを見るには、もう一度ログインしてください。",
    email: "メール", sms: "SMS", push: "プッシュ", inApp: "アプリ内", sse: "アプリ内",
  },
};

export const LANGUAGES = Object.keys(WORDS);
const RIGHT_TO_LEFT = new Set(["ar", "fa", "he", "ur"]);

/** The language's words, with a page's own words in place of some; English for a language that is not here. */
export function wordsOf(lang, own = {}) {
  const one = own.unread ? { unreadOne: undefined } : {};
  return { ...WORDS.en, ...(WORDS[base(lang)] ?? {}), ...one, ...own };
}

/** How many are unread; `unreadOne` is for languages that say it otherwise of one. */
export function counted(words, n, lang) {
  const one = words.unreadOne && new Intl.PluralRules(lang).select(n) === "one";
  return said(one ? words.unreadOne : words.unread, { n });
}

export function directionOf(lang) {
  return RIGHT_TO_LEFT.has(base(lang)) ? "rtl" : "ltr";
}

/** The sentence with its values: `said("{n} unread", {n: 3})`. */
export function said(sentence, values) {
  return sentence.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** A language as browsers name it: `pt_BR` is pt-BR, and what is no language is English. */
export function languageOf(lang) {
  try {
    return Intl.getCanonicalLocales(String(lang).trim().replaceAll("_", "-").replace(/\..*/, ""))[0] ?? "en";
  } catch {
    return "en";
  }
}

function base(lang) {
  return String(lang || "en").toLowerCase().split("-")[0];
}
