// Package protos holds the gRPC interfaces that engines and gateways publish, as far as fleetdrill speaks
// them: smgcommon (KV event batches) and vllmengine (vLLM's service).
//
// The one idea to know: packages, services, names and numbers are the published ones, because they are all
// that wire compatibility needs; the files around them are ours.
//
// The generated code is committed, so that building needs neither protoc nor its plugins. To regenerate,
// have protoc 3.21 or newer, then:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
//	go generate ./internal/protos
package protos

//go:generate protoc --go_out=. --go_opt=module=fleetdrill/internal/protos --go-grpc_out=. --go-grpc_opt=module=fleetdrill/internal/protos smgcommon/common.proto vllmengine/engine.proto
