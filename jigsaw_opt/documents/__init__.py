"""Instances and plans as JSON documents, and profiles of other projects as models."""

from jigsaw_opt.documents.building import InstanceBuilder, add_job, change_bandwidth, remove_job
from jigsaw_opt.documents.decoding import decode_instance, decode_plan, decode_proof
from jigsaw_opt.documents.encoding import (
    canonical_json,
    encode_instance,
    encode_layers,
    encode_model,
    encode_plan,
    encode_proof,
    instance_sha256,
)
from jigsaw_opt.documents.file_bytes import make_folder, require_writable, write_atomically
from jigsaw_opt.documents.files import (
    decode_layers,
    exists,
    load_document,
    load_instance,
    load_plan,
    load_proof,
    load_replay,
    read_layers,
    save_instance,
    save_plan,
    save_proof,
)
from jigsaw_opt.problem.rules.schemas import schema

__all__ = [
    "InstanceBuilder",
    "add_job",
    "canonical_json",
    "change_bandwidth",
    "decode_instance",
    "decode_layers",
    "decode_plan",
    "decode_proof",
    "encode_instance",
    "encode_layers",
    "encode_model",
    "encode_plan",
    "encode_proof",
    "exists",
    "instance_sha256",
    "load_document",
    "load_instance",
    "load_plan",
    "load_proof",
    "load_replay",
    "make_folder",
    "read_layers",
    "remove_job",
    "require_writable",
    "save_instance",
    "save_plan",
    "save_proof",
    "schema",
    "write_atomically",
]
