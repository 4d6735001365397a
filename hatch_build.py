"""Compiles `collections_store/codec/_walk.c` for a wheel or an editable installation, if the machine has a compiler.

Without a compiler the wheel is pure Python and works the same, more slowly. The compiled module uses Python's stable ABI:
one wheel per platform serves all versions of CPython from 3.11 on, except free-threaded builds.
"""

import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

NAME = "collections_store.codec._walk"
ABI = "cp311-abi3"


class OptionalExtension(BuildHookInterface[Any]):
    """Adds the compiled module to the wheel, and the platform to the wheel's name."""

    def initialize(self, _: str, build_data: dict[str, Any]) -> None:
        """Compile in place: an editable installation imports the module from the checkout."""
        folder = Path(self.root, *NAME.split(".")[:-1])
        for old in (*folder.glob("_walk*.so"), *folder.glob("_walk*.pyd")):
            old.unlink()
        if sys.implementation.name != "cpython" or not _compile(folder / "_walk.c", self.root):
            self.app.display_warning(
                "no C compiler: the package is built without its compiled part"
            )
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"{ABI}-{platform}"
        build_data["artifacts"] += [
            "collections_store/codec/_walk*.so",
            "collections_store/codec/_walk*.pyd",
        ]


def _compile(source: Path, root: str) -> bool:
    """Return whether the module could be compiled into the folder of its source."""
    extension = Extension(
        NAME, [str(source)], py_limited_api=True, define_macros=[("Py_LIMITED_API", "0x030B0000")]
    )
    command = build_ext(Distribution({"ext_modules": [extension], "package_dir": {"": root}}))
    command.inplace = True
    with TemporaryDirectory() as folder:
        command.build_lib = command.build_temp = folder
        try:
            command.ensure_finalized()
            command.run()
        except (BaseError, CCompilerError):
            return False
    return True
