package zone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
)

// oneConfigMap is a fake API server with a single ConfigMap.
type oneConfigMap struct {
	client.Client
	stored *v1.ConfigMap
}

func (c *oneConfigMap) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if c.stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	c.stored.DeepCopyInto(into.(*v1.ConfigMap))
	return nil
}

func (c *oneConfigMap) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if c.stored != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, o.GetName())
	}
	o.SetResourceVersion("1")
	c.stored = o.(*v1.ConfigMap).DeepCopy()
	return nil
}

func (c *oneConfigMap) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	if o.GetResourceVersion() != c.stored.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, o.GetName(), errors.New("changed"))
	}
	version, err := strconv.Atoi(o.GetResourceVersion())
	o.SetResourceVersion(strconv.Itoa(version + 1))
	c.stored = o.(*v1.ConfigMap).DeepCopy()
	return err
}

// Ten replicas that restart continuously, with clocks that differ by up to half a minute, do not exceed the limit
// in any hour.
func TestCallsStayWithinTheLimit(t *testing.T) {
	for _, perHour := range []int{1, 12, 60, 200} {
		t.Run(strconv.Itoa(perHour), func(t *testing.T) {
			api := &oneConfigMap{}
			replicas := make([]*Calls, 10)
			var granted []time.Time
			random := rand.New(rand.NewPCG(1, uint64(perHour)))
			off := make([]time.Duration, len(replicas))
			for i := range off {
				off[i] = time.Duration(random.IntN(61)-30) * time.Second
			}
			for now := kit.Noon; now.Before(kit.Noon.Add(4 * time.Hour)); now = now.Add(time.Duration(random.IntN(40)) *
				time.Second) {
				i := random.IntN(len(replicas))
				if replicas[i] == nil || random.IntN(5) == 0 {
					replicas[i] = NewCalls(api, "ns") // a restart
				}
				its := now.Add(off[i])
				ok, next, err := replicas[i].Reserve(t.Context(), "DE/carbon/electricityMaps", perHour, its)
				switch {
				case err != nil:
					t.Fatal(err)
				case ok:
					granted = append(granted, now)
				case !next.After(its) || next.After(its.Add(time.Hour+3*time.Minute)):
					t.Fatalf("at %v: call refused until %v", its, next)
				}
			}
			for i, from := range granted {
				n := 0
				for _, at := range granted[i:] {
					if at.Before(from.Add(time.Hour)) {
						n++
					}
				}
				if n > perHour {
					t.Fatalf("%d calls in the hour from %v: want at most %d", n, from, perHour)
				}
			}
			if len(granted) < 3*perHour/2 {
				t.Errorf("only %d calls in four hours: want about %d", len(granted), 4*perHour)
			}
		})
	}
}

func TestNoCallThatIsNotWritten(t *testing.T) {
	for _, tc := range []struct {
		name  string
		funcs interceptor.Funcs
	}{
		{"cannot be read", interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey,
			client.Object, ...client.GetOption,
		) error {
			return errors.New("connection refused")
		}}},
		{"cannot be created", interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption,
		) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, callsName, errors.New("no"))
		}}},
		{"conflicts", interceptor.Funcs{Create: func(context.Context, client.WithWatch,
			client.Object, ...client.CreateOption,
		) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, callsName, errors.New("changed"))
		}}},
		{"times out", interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption,
		) error {
			return context.DeadlineExceeded
		}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := NewCalls(fake.NewClientBuilder().WithInterceptorFuncs(tc.funcs).Build(), "ns")
			if granted, _, err := k.Reserve(t.Context(), "s", 5, kit.Noon); granted || err == nil {
				t.Errorf("granted %v, error %v", granted, err)
			}
		})
	}
}

// Zones that start at the same time share writes.
func TestCallsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		write := func() {
			time.Sleep(20 * time.Millisecond) // the latency of the fake server
			writes++
		}
		slow := interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				write()
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				write()
				return c.Update(ctx, o, opts...)
			},
		}
		k := NewCalls(fake.NewClientBuilder().WithInterceptorFuncs(slow).Build(), "ns")
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				ok, _, err := k.Reserve(t.Context(), fmt.Sprintf("zone-%d/carbon/http", i), 5, kit.Noon)
				if !ok || err != nil {
					t.Errorf("zone %d: granted %v, error %v", i, ok, err)
				}
			})
		}
		all.Wait()
		if writes > 2 { // the first call, and all calls that arrived during its write
			t.Errorf("%d writes for 100 calls, want at most 2", writes)
		}
		var m v1.ConfigMap
		if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: callsName}, &m); err != nil ||
			len(m.Data) != 100 {
			t.Errorf("unexpected ConfigMap: %d keys, error %v", len(m.Data), err)
		}
		// The next write removes expired calls.
		if ok, _, err := k.Reserve(t.Context(), "another", 5, kit.Noon.Add(2*time.Hour)); !ok || err != nil {
			t.Errorf("granted %v, error %v", ok, err)
		}
		if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: callsName}, &m); err != nil ||
			len(m.Data) != 1 {
			t.Errorf("unexpected ConfigMap: %d keys, error %v", len(m.Data), err)
		}
	})
}

// A leader with a clock that is one day ahead must not block a source for a day.
func TestCallsOfAClockThatRanAhead(t *testing.T) {
	k := NewCalls(fake.NewClientBuilder().Build(), "ns")
	if ok, _, _ := k.Reserve(t.Context(), "s", 1, kit.Noon.Add(24*time.Hour)); !ok {
		t.Fatal("the first call was refused")
	}
	after := NewCalls(k.client, "ns")
	if ok, next, err := after.Reserve(t.Context(), "s", 1, kit.Noon); ok || err != nil ||
		next.After(kit.Noon.Add(time.Hour+2*time.Minute)) {
		t.Errorf("granted %v until %v, error %v: want a refusal of an hour", ok, next, err)
	}
	if ok, _, _ := after.Reserve(t.Context(), "s", 1, kit.Noon.Add(time.Hour+2*time.Minute)); !ok {
		t.Error("refused an hour later")
	}
}

// A replica with a slow clock does not change the entries of other replicas. Otherwise their calls would expire too
// early.
func TestCallsOfAClockThatIsBehind(t *testing.T) {
	api := &oneConfigMap{}
	ahead, behind := NewCalls(api, "ns"), NewCalls(api, "ns")
	if ok, _, err := ahead.Reserve(t.Context(), "s", 2, kit.Noon); !ok || err != nil {
		t.Fatalf("granted %v, error %v", ok, err)
	}
	if ok, _, err := behind.Reserve(t.Context(), "s", 2, kit.Noon.Add(-4*time.Minute)); !ok || err != nil {
		t.Fatalf("granted %v, error %v", ok, err)
	}
	if text := api.stored.Data["s"]; !strings.Contains(text, fmt.Sprintf(`"%d":1`, kit.Noon.Unix())) {
		t.Errorf("the entry of the call was changed to %q", text)
	}
}

// A pause requested by a provider survives a restart, prevents calls, and ends.
func TestPausesAreRemembered(t *testing.T) {
	api := &oneConfigMap{}
	block := func(until, now time.Time) {
		t.Helper()
		if err := NewCalls(api, "ns").Block(t.Context(), "s", until, now); err != nil {
			t.Fatal(err)
		}
	}
	want := func(now time.Time, granted bool, until time.Time) {
		t.Helper()
		ok, next, err := NewCalls(api, "ns").Reserve(t.Context(), "s", 3, now)
		if err != nil || ok != granted || !granted && !next.Equal(until) {
			t.Errorf("at %v: granted %v, next %v, error %v; want %v and %v", now, ok, next, err, granted, until)
		}
	}
	want(kit.Noon, true, time.Time{})
	block(kit.Noon.Add(2*time.Hour), kit.Noon)
	want(kit.Noon.Add(time.Minute), false, kit.Noon.Add(2*time.Hour))
	block(kit.Noon.Add(90*time.Minute+time.Millisecond), kit.Noon.Add(2*time.Minute)) // the last call of Block wins
	want(kit.Noon.Add(time.Hour), false, kit.Noon.Add(90*time.Minute+time.Second))
	// A write for another source does not remove a pause, even if all calls stored with it have expired.
	if ok, _, err := NewCalls(api, "ns").Reserve(t.Context(), "other", 3, kit.Noon.Add(85*time.Minute)); !ok ||
		err != nil {
		t.Errorf("granted %v, error %v", ok, err)
	}
	want(kit.Noon.Add(85*time.Minute), false, kit.Noon.Add(90*time.Minute+time.Second))
	want(kit.Noon.Add(91*time.Minute), true, time.Time{})
	block(kit.Noon.Add(4*time.Hour), kit.Noon.Add(2*time.Hour))
	block(time.Time{}, kit.Noon.Add(2*time.Hour))
	want(kit.Noon.Add(2*time.Hour), true, time.Time{})
	// An entry of a clock that was ten days ahead.
	block(kit.Noon.Add(241*time.Hour), kit.Noon.Add(240*time.Hour))
	want(kit.Noon, false, kit.Noon.Add(24*time.Hour))
	want(kit.Noon.Add(time.Hour), false, kit.Noon.Add(24*time.Hour))
	want(kit.Noon.Add(24*time.Hour), true, time.Time{})
}

func TestCallsKey(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"DE/carbon/http", "DE_carbon_http", "DE.carbon.http", "DE/carbon/http-2", strings.Repeat("x", 300),
		strings.Repeat("x", 301), "ü",
	} {
		key := callsKey(name)
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[key] = name
		if len(key) > 253 ||
			strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "" {
			t.Errorf("%q is not a valid key of a ConfigMap", key)
		}
	}
}

func TestCallLogOfStrangers(t *testing.T) {
	for _, text := range []string{
		"", "x", "{", `{"until":"x"}`, `{"until":5}`, `{"calls":{"1":1}}`, `{"calls":{"x":1}}`,
		`{"calls":{"9999999999999999999":1}}`, "null", "[]",
		fmt.Sprintf(`{"calls":{"%d":-5}}`, kit.Noon.Unix()),
		fmt.Sprintf(`{"calls":{"%d":0}}`, kit.Noon.Unix()),
	} {
		if b := readCallLog(text, kit.Noon); b.Until != 0 || len(b.Calls) != 0 {
			t.Errorf("readCallLog(%q) = %v", text, b)
		}
	}
}
