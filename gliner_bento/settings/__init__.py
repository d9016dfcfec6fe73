"""Every setting, declared once: name, default, bounds and one line of help. Knows none of its consumers."""

from gliner_bento.settings.settings import PROJECT_ROOT, Settings, SettingsError, load_or_exit

__all__ = ["PROJECT_ROOT", "Settings", "SettingsError", "load_or_exit"]
