"""What a release is made of: `python -m tools.release`.

    version [X.Y.Z]   writes the version and the names of release.toml to all files that show them; cuts the changelog
    check [--quick]   all that can be tried without an account, as one table; --quick: only what takes seconds
    notes             the changelog's section of this version, for the release's page
    names             the registry and the version, for the release's workflow
    labels            the labels of an image, a line each
    docs FOLDER       puts the built site into FOLDER/VERSION and FOLDER/latest
    ready [TAG]       one line, and exit code 1, if release.toml has a placeholder or the tag is not this version's

Standard library only, but for `check`, which installs its tools into build/release-tools.
"""
