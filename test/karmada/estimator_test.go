package karmada

import (
	"bytes"
	"context"
	"crypto/tls"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubenergy/kubenergy/test/kit"
)

// plain is a gRPC codec that does not encode messages.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (plain) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func (plain) Name() string { return "proto" }

const officially = 7

// startOfficial starts a fake of Karmada's official estimator for all clusters and returns its address.
func startOfficial(t *testing.T, config *tls.Config) string {
	t.Helper()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.ForceServerCodec(plain{}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var request []byte
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			answer := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), officially)
			return stream.SendMsg(&answer)
		}))
	l := listen(t)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

// message encodes a length-delimited protobuf field.
func message(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// question encodes a request of karmada-scheduler for the replicas with the given CPU request that fit in a
// cluster.
func question(cluster, cpu string) []byte {
	entry := append(message(1, []byte("cpu")), message(2, message(1, []byte(cpu)))...)
	return append(message(1, []byte(cluster)), message(2, message(5, entry))...)
}

// estimator sends the requests of karmada-scheduler to the estimator.
func (s *stage) estimator(t *testing.T, address string) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true, // default of karmada-scheduler
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(method string, request []byte) (string, codes.Code) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var answer []byte
		err := conn.Invoke(ctx, "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/"+method, &request,
			&answer, grpc.ForceCodec(plain{}))
		if err != nil {
			return "", status.Code(err)
		}
		_, _, tag := protowire.ConsumeTag(answer)
		n, _ := protowire.ConsumeVarint(answer[max(tag, 0):])
		return strconv.FormatUint(n, 10), codes.OK
	}
	description := func(what, cluster, cpu, want string) {
		t.Helper()
		if got, code := call("MaxAvailableReplicas", question(cluster, cpu)); got != want || code != codes.OK {
			t.Errorf("%s: replicas with CPU request %s in cluster %s = %s, want %s (code %v)",
				what, cpu, cluster, got, want, code)
		}
	}
	c := s.in(t, "asked", "")
	c.turn(50, 400)
	description("nothing waits", "north", "1", "7")
	description("nothing waits", "south", "1", "7")

	c.sends("w", work{stock: true})
	description("with a pending binding", "north", "2", "7")
	description("with a pending binding", "south", "2", "0")
	description("with another CPU request", "south", "1500m", "7")
	if got, code := call("MaxAvailableReplicas", question("elsewhere", "2")); code != codes.NotFound {
		t.Errorf("unexpected response for an unknown cluster: %s, code %v", got, code)
	}
	if got, _ := call("GetUnschedulableReplicas", question("south", "2")); got != "7" {
		t.Errorf("GetUnschedulableReplicas() = %s, want 7", got)
	}
	for garbage, want := range map[string]codes.Code{
		"\xff": codes.Internal, string(message(2, []byte{0x2a})): codes.InvalidArgument,
		string(question("north", "much")): codes.InvalidArgument,
	} {
		if got, code := call("MaxAvailableReplicas", []byte(garbage)); code != want {
			t.Errorf("request %x: unexpected response %s with code %v, want code %v", garbage, got, code, want)
		}
	}
	c.patch(t, bindings, c.ns, "w-job", `{"spec":{"clusters":[{"name":"north","replicas":1}]},"metadata":{"annotations":{`+
		`"policy.karmada.io/applied-placement":"{\"replicaScheduling\":{\"replicaDivisionPreference\":\"Aggregated\",`+
		`\"replicaSchedulingType\":\"Divided\"}}"}}}`)
	kit.Eventually(t, 5*time.Second, "the binding is no longer pending", func() bool {
		got, _ := call("MaxAvailableReplicas", question("south", "2"))
		return got == "7"
	})

	shadow := s.in(t, "watched", "kubenergy.io/mode: shadow")
	c.await(5*time.Second, "the mode of the namespace is received", func() bool {
		mode, _ := s.objects.View().Mode(shadow.ns)
		return mode == "shadow"
	})
	shadow.sends("w", work{stock: true, cpu: "3"})
	description("in shadow", "south", "3", "7")
	description("in shadow", "north", "3", "7")
}
