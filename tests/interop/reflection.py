"""Health and reflection (v1 and v1alpha) through grpcio, the way grpcurl uses them: list the
services, fetch the files of each, build descriptors from nothing else, and call by them."""

import os
import subprocess
import sys
import tempfile
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import harness

API = os.path.join(harness.HERE, "..", "..", "api", "proto")
harness.load_stubs()
_out = tempfile.mkdtemp(prefix="api-stubs-")
subprocess.run(["protoc", "-I" + API, "--python_out=" + _out,
                "grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto",
                "grpc/reflection/v1alpha/reflection.proto"], cwd=API, check=True)


def load(name):
    """One generated module, by file: its package is named like grpcio's own."""
    import importlib.util
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"),
                                                  os.path.join(_out, name + "_pb2.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


health = load("grpc/health/v1/health")
reflection = {"v1": load("grpc/reflection/v1/reflection"),
              "v1alpha": load("grpc/reflection/v1alpha/reflection")}


class Reflection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        cls.channel = grpc.insecure_channel(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        assert cls.server.stop() == (0, "drained\n")

    def ask(self, version, *requests):
        module = reflection[version]
        method = self.channel.stream_stream(
            "/grpc.reflection.%s.ServerReflection/ServerReflectionInfo" % version,
            request_serializer=module.ServerReflectionRequest.SerializeToString,
            response_deserializer=module.ServerReflectionResponse.FromString)
        return list(method(iter([module.ServerReflectionRequest(**r) for r in requests])))

    def test_services_and_their_files(self):
        for version in reflection:
            listed, = self.ask(version, {"list_services": ""})
            names = [s.name for s in listed.list_services_response.service]
            self.assertEqual(sorted(names), [
                "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection", "sftest.v1.Echo"])
            # The test's own service is not in the contract's descriptors.
            answer, = self.ask(version, {"file_containing_symbol": "sftest.v1.Echo"})
            self.assertEqual(answer.error_response.error_code, grpc.StatusCode.NOT_FOUND.value[0])

    def test_descriptors_of_the_contract(self):
        """Every file that comes with the allocator's service loads: all imports are there."""
        answer, = self.ask("v1", {"file_containing_symbol": "searchfabric.v1.IdAllocatorService"})
        files = [descriptor_pb2.FileDescriptorProto.FromString(f)
                 for f in answer.file_descriptor_response.file_descriptor_proto]
        self.assertEqual(files[0].name, "searchfabric/v1/search_fabric.proto")
        by_name = {f.name: f for f in files}
        self.assertEqual(len(by_name), len(files))
        pool = descriptor_pool.DescriptorPool()

        def add(name):
            file = by_name.pop(name, None)
            if file is not None:
                for dependency in file.dependency:
                    add(dependency)
                pool.Add(file)

        for name in list(by_name):
            add(name)
        service = pool.FindServiceByName("searchfabric.v1.IdAllocatorService")
        self.assertEqual([m.name for m in service.methods], ["AllocateIds"])
        harness.proves("test_descriptors_of_the_contract", "ALLOC-3.2-01")
        seen = set()

        def walk(message):
            if message.full_name not in seen:
                seen.add(message.full_name)
                for field in message.fields:
                    if field.message_type is not None:
                        walk(field.message_type)

        walk(service.methods[0].input_type)
        walk(service.methods[0].output_type)
        self.assertIn("searchfabric.v1.AllocationPlan", seen)
        self.assertEqual([name for name in seen if "lease" in name.lower()], [])
        harness.proves("test_descriptors_of_the_contract", "ALLOC-3.2-05")

    def test_call_by_descriptor(self):
        """As a generic client would: health's descriptor from the server, then a call by it."""
        answer, = self.ask("v1", {"file_containing_symbol": "grpc.health.v1.Health.Check"})
        pool = descriptor_pool.DescriptorPool()
        for file in reversed(answer.file_descriptor_response.file_descriptor_proto):
            pool.AddSerializedFile(file)
        method = pool.FindMethodByName("grpc.health.v1.Health.Check")
        factory = message_factory.MessageFactory(pool)
        request = factory.GetPrototype(method.input_type)
        response = factory.GetPrototype(method.output_type)
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check",
                                         request_serializer=request.SerializeToString,
                                         response_deserializer=response.FromString)
        self.assertEqual(check(request(service="sftest.v1.Echo")).status, 1)

    def test_other_requests(self):
        answers = self.ask("v1", {"file_by_filename": "grpc/health/v1/health.proto"},
                           {"file_by_filename": "none.proto"},
                           {"all_extension_numbers_of_type": "google.rpc.Status"},
                           {"all_extension_numbers_of_type": "none.None"}, {})
        kinds = [a.WhichOneof("message_response") for a in answers]
        self.assertEqual(kinds, ["file_descriptor_response", "error_response",
                                 "all_extension_numbers_response", "error_response",
                                 "error_response"])
        self.assertEqual(answers[0].original_request.file_by_filename, "grpc/health/v1/health.proto")

    def test_health(self):
        check = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString)
        self.assertEqual(check(health.HealthCheckRequest()).status, 1)
        with self.assertRaises(grpc.RpcError) as caught:
            check(health.HealthCheckRequest(service="none"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        watch = self.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString)
        stream = watch(health.HealthCheckRequest(service="none"))
        self.assertEqual(next(stream).status, 3)
        stream.cancel()


if __name__ == "__main__":
    unittest.main()
