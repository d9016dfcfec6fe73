"""Every setting, declared once: name, default, bounds and one line of help. Knows none of its consumers."""

from gliner_bento.settings.configuration import PROJECT_ROOT, SettingsError
from gliner_bento.settings.settings import Settings

__all__ = ["PROJECT_ROOT", "Settings", "SettingsError"]
