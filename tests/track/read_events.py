"""What TensorBoard's own reader finds in a folder of event files, as one JSON document on stdout.

    python read_events.py DIR          as its server reads them, forgetting what a restart replaced
    python read_events.py --api DIR    through the EventAccumulator that scripts use, its Scalars(), Images(), Histograms()
    python read_events.py --files DIR  every event of every file, through EventFileLoader
"""

import base64
import io
import json
import logging
import pathlib
import sys

from tensorboard.backend.event_processing import event_accumulator, event_file_loader, plugin_event_accumulator
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.util import tensor_util

logging.disable(logging.WARNING)  # the reader reports what it purges


def accumulated(folder, api):
    if api:
        everything = dict.fromkeys(event_accumulator.DEFAULT_SIZE_GUIDANCE, 0)
        events = event_accumulator.EventAccumulator(folder, size_guidance=everything)
    else:
        everything = dict.fromkeys(("scalars", "text", "images", "hparams", "histograms"), 0)
        events = plugin_event_accumulator.EventAccumulator(folder, tensor_size_guidance=everything)
    events.Reload()
    found = {"scalars": {}, "text": {}, "images": {}, "hparams": {}, "histograms": {}, "videos": {}}
    if api:
        legacy(events, found)
    for tag in events.Tags()["tensors"]:
        metadata = events.SummaryMetadata(tag)
        plugin = metadata.plugin_data.plugin_name
        if plugin == "hparams":
            info = hparams_metadata.parse_session_start_info_plugin_data(metadata.plugin_data.content)
            for name, value in info.hparams.items():
                kind = value.WhichOneof("kind")
                found["hparams"][name] = [kind, getattr(value, kind)]
            continue
        values = [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        if plugin != "text" and api:
            raise ValueError(f"{tag}: scripts do not find {plugin} that are tensors")
        if plugin == "scalars":
            assert metadata.data_class == 1, metadata
            found["scalars"][tag] = [[step, repr(float(array))] for step, array in values]
        elif plugin == "text":
            found["text"][tag] = [[step, array.item().decode()] for step, array in values]
        elif plugin == "histograms":
            assert metadata.data_class == 2, metadata
            found["histograms"][tag] = [[step, array.tolist()] for step, array in values]
        elif plugin == "images" and values[0][1][2].startswith(b"GIF"):
            found["videos"][tag] = [[step, int(array[0]), int(array[1]), frames_of(array[2])] for step, array in values]
        elif plugin == "images":
            found["images"][tag] = [
                [step, int(array[0]), int(array[1])] + [base64.b64encode(png).decode() for png in array[2:]]
                for step, array in values
            ]
        else:
            raise ValueError(f"{tag}: plugin {plugin!r}")
    return found


def legacy(events, found):
    """What is no tensor."""
    for tag in events.Tags()["scalars"]:
        found["scalars"][tag] = [[event.step, repr(event.value)] for event in events.Scalars(tag)]
    for tag in events.Tags()["images"]:
        images = events.Images(tag)
        gif = images[0].encoded_image_string.startswith(b"GIF")
        found["videos" if gif else "images"][tag] = [
            [image.step, image.width, image.height]
            + [frames_of(image.encoded_image_string) if gif else base64.b64encode(image.encoded_image_string).decode()]
            for image in images
        ]
    for tag in events.Tags()["histograms"]:
        found["histograms"][tag] = []
        for event in events.Histograms(tag):
            histogram = event.histogram_value
            edges = [histogram.min, *histogram.bucket_limit]
            assert histogram.max == edges[-1] and histogram.num == sum(histogram.bucket), histogram
            found["histograms"][tag].append([event.step, [list(row) for row in zip(edges, edges[1:], histogram.bucket)]])


def frames_of(gif):
    """The mean colour of each frame, as Pillow decodes them."""
    from PIL import Image, ImageSequence, ImageStat

    return [ImageStat.Stat(frame.convert("RGB")).mean for frame in ImageSequence.Iterator(Image.open(io.BytesIO(gif)))]


def every_file(folder):
    files = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        steps = []
        for event in event_file_loader.EventFileLoader(str(path)).Load():
            if event.WhichOneof("what") == "summary":
                steps.append(event.step)
        files[path.name] = steps
    return files


if sys.argv[1] == "--files":
    print(json.dumps(every_file(sys.argv[2])))
else:
    print(json.dumps(accumulated(sys.argv[-1], api=sys.argv[1] == "--api")))
