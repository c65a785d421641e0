package karmada

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/panics"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// The estimator's protocol, as karmada-scheduler speaks it: pkg/estimator/pb/estimator.proto of Karmada. Messages are
// read as far as they are needed, and handed on as they are.
const (
	estimatorService = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator"
	maxReplicas      = "MaxAvailableReplicas"
	noOpinion        = int64(-1)
	patience         = time.Minute     // that a binding waits for the clusters that we like best
	remembered       = 2 * time.Second // an answer: karmada-scheduler asks for each cluster at once
	mostWaiting      = 8               // bindings that one answer is about
	mostTold         = 10_000
	looks            = 10
	glance           = 30 * time.Millisecond
)

// raw hands messages on as bytes.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:misspell // its name
	return nil
}

func (raw) Name() string { return "proto" }

var _ encoding.CodecV2 = raw{}

// estimator answers for all clusters how many replicas they have room for: those that work should go to as many as the
// official estimator says, the others none. Where we have no opinion it is the official answer alone.
type estimator struct {
	*Driver

	mu    sync.Mutex
	known map[string]*opinion         // by requirements, and what waits with them
	told  map[types.UID]string        // of bindings, what was recorded last
	conns map[string]*grpc.ClientConn // to official estimators, by address

	complains flowcontrol.PassiveRateLimiter
}

func newEstimator(d *Driver) *estimator {
	return &estimator{
		Driver: d, known: map[string]*opinion{}, told: map[types.UID]string{}, conns: map[string]*grpc.ClientConn{},
		complains: flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 1),
	}
}

type opinion struct {
	once    sync.Once
	at      time.Time
	targets map[string]bool // clusters; nil: none is meant
	why     string          // none is meant
}

// serve answers until ctx ends.
func (e *estimator) serve(ctx context.Context) error {
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(1 << 20)}
	if e.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.TLS)))
	}
	server := grpc.NewServer(options...)
	description := &grpc.ServiceDesc{ServiceName: estimatorService, HandlerType: (*any)(nil)}
	for _, method := range []string{maxReplicas, "MaxAvailableComponentSets", "GetUnschedulableReplicas"} {
		description.Methods = append(description.Methods, grpc.MethodDesc{MethodName: method, Handler: func(_ any,
			ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			var request []byte
			if err := decode(&request); err != nil {
				return nil, err
			}
			answer, err := e.answer(ctx, method, request)
			return &answer, err
		}})
	}
	server.RegisterService(description, struct{}{})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(e.Estimator)
}

// answer asks the official estimator, and takes what it says for the clusters that are not to have the work as none.
// Where it fails, the others count by what karmada-scheduler itself knows of them.
func (e *estimator) answer(ctx context.Context, method string, request []byte) ([]byte, error) {
	r, err := readRequest(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if e.cluster(r.cluster) == nil {
		return nil, status.Errorf(codes.NotFound, "cluster %.80q is not a member", r.cluster)
	}
	official, err := e.official(ctx, r.cluster, method, request)
	if method != maxReplicas {
		return official, err
	}
	if err != nil {
		if e.complains.TryAccept() {
			e.Log.Warn("asking the official estimator", "cluster", r.cluster, "error", err)
		}
		official = number(noOpinion)
	}
	why, targets := "it panicked", map[string]bool(nil)
	panics.Survive(e.Log, "karmada", "answering karmada-scheduler", func() {
		targets, why = e.opinion(ctx, policy.ResourcesOf(r.needs))
	})
	switch {
	case targets == nil:
	case targets[r.cluster]:
		why = "meant"
	default:
		why, official = "not meant", number(0)
	}
	answers.WithLabelValues(why).Inc()
	return official, nil
}

// official is the answer of the official estimator; without one there is no opinion.
func (e *estimator) official(ctx context.Context, cluster, method string, request []byte) ([]byte, error) {
	if e.Upstream == nil {
		return number(noOpinion), nil
	}
	conn, err := e.dial(e.Upstream(cluster))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	var answer []byte
	err = conn.Invoke(ctx, "/"+estimatorService+"/"+method, &request, &answer, grpc.ForceCodecV2(raw{}))
	return answer, err
}

func (e *estimator) dial(address string) (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn := e.conns[address]; conn != nil {
		return conn, nil
	}
	// No authority that all know signs the certificates of estimators, and their answers only limit replicas.
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above
		MinVersion:         tls.VersionTLS12,
	}
	if e.TLS != nil {
		config.Certificates = e.TLS.Certificates // official estimators ask for one
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err == nil {
		e.conns[address] = conn
	}
	return conn, err
}

// opinion returns the clusters that the bindings which wait with these needs should go to, or nil and why. A question
// does not say which of them it is about.
func (e *estimator) opinion(ctx context.Context, request sched.Resources) (targets map[string]bool, why string) {
	waiting, known, others := e.waiting(request)
	for range looks { // karmada-scheduler may have seen it before we did
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
	uids := make([]types.UID, len(waiting))
	for i, b := range waiting {
		uids[i] = b.UID
	}
	key := fmt.Sprint(request, uids)
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

// advise returns where a binding that keeps some clusters should go; nil: anywhere, and why.
func (e *estimator) advise(ctx context.Context, b *binding, kept []target) (targets []target, why string) {
	targets, entry, err := e.Driver.answer(ctx, b, kept, "")
	switch {
	case errors.Is(err, errNoOpinion):
		return nil, "no signals"
	case errors.Is(err, errUnread):
		return nil, "the workload cannot be read"
	case err != nil:
		return nil, "no room"
	case entry == nil:
		return nil, "no replica is new"
	}
	e.mu.Lock()
	again := e.told[b.UID] == entry.record.Message
	if len(e.told) > mostTold {
		clear(e.told)
	}
	e.told[b.UID] = entry.record.Message
	e.mu.Unlock()
	if !again {
		e.Record(entry.record, entry.on)
	}
	return targets, ""
}

// waiting are a few of the bindings that wait for karmada-scheduler, and not for long, with these needs, where the
// mode is to enforce; known says whether any waits with these needs, and others whether one waits about which we have
// no opinion, which the question may be about.
func (e *estimator) waiting(request sched.Resources) (some []*binding, known, others bool) {
	for _, b := range bindings(e.bound.GetStore().List()) {
		if b.Spec.SchedulerName == SchedulerName || b.suspended() || b.duplicated() || !b.waits(e.gone) ||
			b.needs() != request {
			continue
		}
		known = true
		if !e.enforces(b) || b.unsupported() != nil {
			others = true
		} else if len(some) < mostWaiting && e.Clock().Sub(b.since()) < patience {
			some = append(some, b)
		}
	}
	return some, known, others
}

// enforces reports whether the namespace of a binding lets us act.
func (d *Driver) enforces(b *binding) bool {
	mode, _ := d.View().Mode(b.Spec.Resource.Namespace)
	return mode == v1alpha1.ModeEnforce
}

// since is since when a binding waits: it was let go, placed anew, or created.
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

// asked is what a request says.
type asked struct {
	cluster string
	needs   v1.ResourceList
}

// readRequest reads the cluster (field 1) and the resources of a replica (field 2, in it field 5: a map of quantities).
func readRequest(data []byte) (r asked, err error) {
	r.needs = v1.ResourceList{}
	err = fields(data, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			r.cluster = string(value)
		case 2:
			return fields(value, func(number protowire.Number, entry []byte) error {
				if number != 5 {
					return nil
				}
				return r.quantity(entry)
			})
		}
		return nil
	})
	return r, err
}

// quantityText is what karmada-scheduler writes. The parser of quantities would compute 1e-999999999 for ever, and a
// replica that needs less than nothing would have room everywhere.
var quantityText = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,2})?$`)

// quantity reads an entry: a name (field 1), and a quantity (field 2, in it field 1: its text).
func (r *asked) quantity(entry []byte) error {
	var name, text string
	err := fields(entry, func(number protowire.Number, value []byte) error {
		if number == 1 {
			name = string(value)
			return nil
		}
		return fields(value, func(_ protowire.Number, value []byte) error {
			text = string(value)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if !quantityText.MatchString(text) {
		return fmt.Errorf("%.40q is no quantity", text)
	}
	r.needs[v1.ResourceName(name)], err = resource.ParseQuantity(text)
	return err
}

// fields calls of with each field of a message that holds bytes.
func fields(data []byte, of func(number protowire.Number, value []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return protowire.ParseError(n)
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := of(number, value); err != nil {
			return fmt.Errorf("field %d: %w", number, err)
		}
		data = data[n:]
	}
	return nil
}

// number is an answer.
func number(v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(v))
}
