from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfair.errors import DataError
from fedfair.plan.sources import ImageData
from fedfair.tables.pixels import feature_values
from fedfair.tables.sources.images import load_images

COLOURS = {"1.png": (255, 0, 0), "2.png": (0, 255, 0), "3.png": (0, 0, 255), "4.png": (255, 255, 255)}
CSV = "image_id,Young,Male\n1.png,1,-1\n2.png,-1,1\n3.png,1,1\n4.png,-1,-1\n"
TEXT = "4\nYoung Male\n1.png 1 -1\n2.png -1 1\n3.png 1 1\n4.png -1 -1\n"


def spec(**fields: object) -> ImageData:
    return ImageData.model_validate({"label": "Young", "height": 6, "width": 4, **fields})


def write(
    folder: Path, inner: str = "img_align_celeba", table: str = CSV, name: str = "list_attr_celeba.csv"
) -> Path:
    (folder / inner).mkdir(parents=True, exist_ok=True)
    for file, colour in COLOURS.items():
        Image.new("RGB", (10, 12), colour).save(folder / inner / file)
    (folder / name).write_text(table)
    return folder


@pytest.mark.parametrize("inner", ["img_align_celeba", "img_align_celeba/img_align_celeba", ""])
@pytest.mark.parametrize(("table", "name"), [(CSV, "list_attr_celeba.csv"), (TEXT, "list_attr_celeba.txt")])
def test_images_are_resized_channels_first_and_labelled(tmp_path: Path, inner: str, table: str, name: str) -> None:
    splits = load_images(write(tmp_path, inner, table, name), None, spec(keep=["Male"]), ())
    train = splits.train
    assert train.features.shape == (4, 3, 6, 4)
    assert train.features.dtype == np.uint8
    assert feature_values(train.features).mean(axis=(2, 3)).tolist() == [
        [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1],
    ]  # fmt: skip
    assert train.labels.tolist() == [1, 0, 1, 0]
    assert train.columns["Male"].tolist() == ["-1", "1", "1", "-1"]
    assert splits.validation is None
    assert splits.test is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list_eval_partition.txt", "1.png 0\n2.png 2\n3.png 1\n4.png 0\n"),
        ("list_eval_partition.csv", "image_id,partition\n4.png,0\n3.png,1\n2.png,2\n1.png,0\n"),
    ],
)
def test_a_partition_beside_the_table_cuts_all_three_splits(tmp_path: Path, name: str, text: str) -> None:
    (write(tmp_path) / name).write_text(text)
    splits = load_images(tmp_path, None, spec(), ())
    assert splits.validation is not None
    assert splits.test is not None
    assert [part.labels.tolist() for part in (splits.train, splits.validation, splits.test)] == [[1, 0], [1], [0]]


def test_damaged_folders_are_refused_with_the_file_at_fault(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"no column 'Yong' \(did you mean 'Young'\?\)"):
        load_images(tmp_path, None, spec(label="Yong"), ())
    (tmp_path / "list_eval_partition.txt").write_text("1.png 0\n")
    with pytest.raises(DataError, match=r"no line for 3 images, such as 2\.png"):
        load_images(tmp_path, None, spec(), ())
    (tmp_path / "list_eval_partition.txt").write_text("1.png 0\n2.png 3\n3.png 1\n4.png 0\n")
    with pytest.raises(DataError, match=r"not 0, 1 or 2 in 1 row \(line 2: '3'\)"):
        load_images(tmp_path, None, spec(), ())
    (tmp_path / "list_eval_partition.txt").write_text("1.png 1\n2.png 1\n3.png 1\n4.png 1\n")
    with pytest.raises(DataError, match="leaves no image for training"):
        load_images(tmp_path, None, spec(), ())
    (tmp_path / "list_eval_partition.txt").unlink()
    picture = tmp_path / "img_align_celeba" / "2.png"
    picture.write_bytes(picture.read_bytes()[:45])
    with pytest.raises(DataError, match=r"2\.png is not an image that can be read"):
        load_images(tmp_path, None, spec(), ())
    (tmp_path / "img_align_celeba" / "1.png").unlink()
    with pytest.raises(DataError, match=r"does not hold 1\.png, the first image"):
        load_images(tmp_path, None, spec(), ())


def test_grey_images_tables_elsewhere_and_labels_that_are_not_binary(tmp_path: Path) -> None:
    train = load_images(write(tmp_path), None, spec(channels=1), ()).train
    assert train.features.shape == (4, 1, 6, 4)
    assert train.features[3].min() == 255
    write(tmp_path / "images", "", CSV, "unused.csv")
    (tmp_path / "table.csv").write_text(CSV)
    assert len(load_images(tmp_path / "images", tmp_path / "table.csv", spec(), ()).train) == 4
    write(tmp_path, table=CSV.replace("2.png,-1", "2.png,5"))
    with pytest.raises(DataError, match=r"column 'Young': not -1, 0 or 1 in 1 row \(line 3: '5'\)"):
        load_images(tmp_path, None, spec(), ())
