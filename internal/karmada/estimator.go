package karmada

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Constants of the estimator protocol, defined in pkg/estimator/pb/estimator.proto of Karmada. Requests are parsed
// only as needed and forwarded unchanged, because all their fields are unknown fields of an empty message.
const (
	estimatorService  = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/"
	maxReplicasMethod = estimatorService + "MaxAvailableReplicas"
	noOpinion         = -1
	timeout           = time.Minute     // maximum wait of a binding for the preferred clusters
	remembered        = 2 * time.Second // lifetime of an opinion, for the queries of all clusters
	maxWaiting        = 8               // maximum number of bindings per opinion
	maxReported       = 10_000
	looks             = 10
	glance            = 30 * time.Millisecond

	// Clients reconnect automatically, and requests in flight are still completed.
	maxIdle = 5 * time.Minute
	maxAge  = 30 * time.Minute // also closes connections with incomplete requests
	minPing = 10 * time.Second // minimum of grpc-go clients
)

// estimator reports the available replicas of all clusters. For preferred clusters it returns the result of the
// official estimator, for others 0. Without an opinion it returns the official result for all clusters.
type estimator struct {
	*Driver

	mu       sync.Mutex
	known    map[string]*opinion         // by requirements and waiting bindings
	reported *cache.LRUExpireCache       // last recorded message by UID of the binding
	conns    map[string]*grpc.ClientConn // connections to official estimators by address

	complains rate.Sometimes
}

func newEstimator(d *Driver) *estimator {
	return &estimator{
		Driver: d, known: map[string]*opinion{}, reported: cache.NewLRUExpireCache(maxReported),
		conns: map[string]*grpc.ClientConn{}, complains: rate.Sometimes{Interval: time.Minute},
	}
}

type opinion struct {
	once    sync.Once
	at      time.Time
	targets map[string]bool // preferred clusters; nil if there is no opinion
	why     string          // reason if there is no opinion
}

// serve runs the gRPC server until ctx is done.
func (e *estimator) serve(ctx context.Context) error {
	options := []grpc.ServerOption{
		grpc.UnknownServiceHandler(e.handle), grpc.MaxRecvMsgSize(1 << 20),
		grpc.MaxConcurrentStreams(daemon.MaxStreams), grpc.ConnectionTimeout(daemon.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxIdle, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: time.Minute, Time: time.Minute,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if e.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.TLS)))
	}
	server := grpc.NewServer(options...)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(e.Estimator)
}

// handle handles a request.
func (e *estimator) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if !strings.HasPrefix(method, estimatorService) {
		return status.Errorf(codes.Unimplemented, "unknown estimator method %.80q", method)
	}
	var request emptypb.Empty
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	answer, err := e.answer(stream.Context(), method, &request)
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// answer queries the official estimator and returns its result for preferred clusters and 0 for others. If the
// official estimator fails, preferred clusters have no opinion, so that karmada-scheduler uses its own data.
func (e *estimator) answer(ctx context.Context, method string, request *emptypb.Empty) (proto.Message, error) {
	cluster, needs, err := readRequest(request.ProtoReflect().GetUnknown())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if e.cluster(cluster) == nil {
		return nil, status.Errorf(codes.NotFound, "cluster %.80q is not a member", cluster)
	}
	official, err := e.official(ctx, cluster, method, request)
	if method != maxReplicasMethod {
		return official, err
	}
	if err != nil {
		e.complains.Do(func() { e.Log.Warn("Failed to query official estimator", "cluster", cluster, "error", err) })
		official = wrapperspb.Int32(noOpinion)
	}
	why, targets := "it panicked", map[string]bool(nil)
	panics.Survive(e.Log, "karmada", "estimator request", func() {
		targets, why = e.opinion(ctx, policy.ResourcesOf(needs))
	})
	switch {
	case targets == nil:
	case targets[cluster]:
		why = "meant"
	default:
		why, official = "not meant", wrapperspb.Int32(0)
	}
	answers.WithLabelValues(why).Inc()
	return official, nil
}

// official returns the response of the official estimator, or no opinion if none is configured.
func (e *estimator) official(ctx context.Context, cluster, method string, request proto.Message) (
	proto.Message, error,
) {
	if e.Upstream == "" {
		return wrapperspb.Int32(noOpinion), nil
	}
	conn, err := e.dial(strings.ReplaceAll(e.Upstream, "{cluster}", cluster))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	answer := new(emptypb.Empty)
	return answer, conn.Invoke(ctx, method, request, answer)
}

func (e *estimator) dial(address string) (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn := e.conns[address]; conn != nil {
		return conn, nil
	}
	// The certificates of estimators are not signed by a common authority, and their responses only limit replicas.
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above
		MinVersion:         tls.VersionTLS12,
	}
	if e.TLS != nil {
		config.Certificates = e.TLS.Certificates // official estimators require a client certificate
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err == nil {
		e.conns[address] = conn
	}
	return conn, err
}

// opinion returns the preferred clusters of the waiting bindings with the given request, or nil and the reason. A
// query does not identify its binding.
func (e *estimator) opinion(ctx context.Context, request sched.Resources) (targets map[string]bool, why string) {
	waiting, known, others := e.waiting(request)
	for range looks { // karmada-scheduler may have observed the binding first
		if known || !kube.Pause(ctx, glance) {
			break
		}
		waiting, known, others = e.waiting(request)
	}
	switch {
	case others:
		return nil, "others like it wait"
	case len(waiting) == 0 && known:
		return nil, "it has waited for long"
	case len(waiting) == 0:
		return nil, "nothing waits"
	}
	key := fmt.Sprint(request, sliceutil.Map(waiting, func(b *binding) types.UID { return b.UID }))
	now := e.Clock()
	e.mu.Lock()
	maps.DeleteFunc(e.known, func(_ string, old *opinion) bool { return now.Sub(old.at) > remembered })
	o := e.known[key]
	if o == nil {
		o = &opinion{at: now}
		e.known[key] = o
	}
	e.mu.Unlock()
	o.once.Do(func() {
		o.why = "it panicked" // replaced unless there is a panic
		for _, b := range waiting {
			var advised []target
			kept := e.kept(b)
			advised, o.why = e.advise(ctx, b, kept)
			for _, t := range advised {
				if o.targets == nil {
					o.targets = map[string]bool{}
				}
				if t.Replicas > replicas(kept, t.Name) {
					o.targets[t.Name] = true
				}
			}
		}
	})
	return o.targets, o.why
}

// advise returns the preferred clusters of a binding with the given kept replicas, or nil and the reason.
func (e *estimator) advise(ctx context.Context, b *binding, kept []target) (targets []target, why string) {
	a, err := e.Driver.answer(ctx, b, kept, "")
	switch {
	case errors.Is(err, errNoOpinion):
		return nil, "no signals"
	case errors.Is(err, errUnread):
		return nil, "the workload cannot be read"
	case err != nil:
		return nil, "no room"
	case a.on == nil:
		return nil, "no replica is new"
	}
	last, _ := e.reported.Get(b.UID)
	if e.reported.Add(b.UID, a.record.Message, time.Hour); last != a.record.Message {
		e.Record(a.record, a.on)
	}
	return a.targets, ""
}

// waiting returns up to maxWaiting bindings that wait for karmada-scheduler with the given request, have not timed
// out, and are in a namespace with mode Enforce. The result known is true if any binding waits with this request,
// and others is true if there is no opinion about one of them, because the query may be for that binding.
func (e *estimator) waiting(request sched.Resources) (some []*binding, known, others bool) {
	for _, b := range bindings(e.bound.GetStore().List()) {
		if b.Spec.SchedulerName == SchedulerName || b.suspended() || b.duplicated() || !b.waits(e.gone) ||
			b.needs() != request {
			continue
		}
		known = true
		if !e.enforces(b) || b.unsupported() != nil {
			others = true
		} else if len(some) < maxWaiting && e.Clock().Sub(b.since()).Abs() < timeout {
			some = append(some, b)
		}
	}
	return some, known, others
}

// enforces reports whether the mode of the binding's namespace is Enforce.
func (d *Driver) enforces(b *binding) bool {
	mode, _ := d.View().Mode(b.Spec.Resource.Namespace)
	return mode == v1alpha1.ModeEnforce
}

// since returns the time at which a binding was created, rescheduled or released, whichever is the latest. It may
// be in the future, because users who can update the binding can set its annotation.
func (b *binding) since() time.Time {
	since := b.CreationTimestamp.Time
	if at := b.Spec.RescheduleTriggeredAt; at != nil {
		since = at.Time
	}
	if at, _ := time.Parse(time.RFC3339, b.Annotations[v1alpha1.AnnotationReleasedAt]); at.After(since) {
		since = at
	}
	return since
}

// readRequest parses the cluster (field 1) and the resource request of a replica (field 2). The latter contains a
// map from names (field 1) to quantities (field 2, a message with a string in field 1) in its field 5.
func readRequest(request []byte) (cluster string, needs v1.ResourceList, err error) {
	var r reader
	needs = v1.ResourceList{}
	for _, entry := range r.all(r.last(request, 2), 5) {
		name, text := string(r.last(entry, 1)), string(r.last(r.last(entry, 2), 1))
		if needs[v1.ResourceName(name)], err = kube.ParseQuantity(text); err != nil {
			return "", nil, err
		}
	}
	return string(r.last(request, 1)), needs, r.err
}

// reader parses protobuf messages and stores the first error.
type reader struct{ err error }

// all returns all values of a bytes field in a message.
func (r *reader) all(message []byte, field protowire.Number) (values [][]byte) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			r.err = protowire.ParseError(n)
			return nil
		}
		if number == field && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ := protowire.ConsumeBytes(message[tag:])
			values = append(values, value)
		}
		message = message[n:]
	}
	return values
}

// last returns the last value of a bytes field, which takes precedence in protobuf.
func (r *reader) last(message []byte, field protowire.Number) []byte {
	values := r.all(message, field)
	if len(values) == 0 {
		return nil
	}
	return values[len(values)-1]
}
