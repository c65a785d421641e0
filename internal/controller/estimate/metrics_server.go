package estimate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/controller/meter"
	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Usage contains the usage of pods and nodes. Nodes have an empty namespace.
type Usage map[podName]Used

// Used contains the number of cores in use and the memory usage in bytes. Bytes is 0 if unknown.
type Used struct{ Cores, Bytes float64 }

type podName struct{ namespace, name string }

const (
	metricsPath = "/apis/metrics.k8s.io/v1beta1/"

	askTimeout = 30 * time.Second
	askAgain   = 5 * time.Minute // if the API does not exist or access is denied

	usageMaxAge = 3 * time.Minute
	usageAhead  = time.Minute // tolerated clock skew

	maxItems = 1_000_000
	// A list of 500,000 pods has 200 MB. It is decoded item by item and never stored.
	maxList       = 512 << 20
	maxItem       = 4 << 20
	maxContainers = 1000
)

// MetricsServer reads the resource metrics API (metrics.k8s.io) with one list request each for nodes and pods. It
// must not be used concurrently.
type MetricsServer struct {
	client rest.Interface
	clock  func() time.Time
	uptime func() time.Duration
	again  time.Duration // uptime of the next attempt
}

// NewMetricsServer returns a MetricsServer that connects through the API server. The user of the config needs
// permission to list nodes and pods in the API group metrics.k8s.io.
func NewMetricsServer(config *rest.Config, client *http.Client) (*MetricsServer, error) {
	c := rest.CopyConfig(config)
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	built, err := rest.UnversionedRESTClientForConfigAndClient(c, client)
	if err != nil {
		return nil, fmt.Errorf("creating the client of metrics-server: %w", err)
	}
	return &MetricsServer{client: built, clock: time.Now, uptime: meter.Uptime}, nil
}

// Usage returns the current usage of all nodes and of the pods selected by wanted. It returns nil without an error
// during the pause after the API was found to be unavailable.
func (m *MetricsServer) Usage(ctx context.Context, wanted func(namespace, pod string) bool) (Usage, error) {
	if m.uptime() < m.again {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	u, now := Usage{}, m.clock()
	add := func(of podName, i *metricsItem) {
		if cores, ok := i.cores(now); ok {
			u[of] = Used{cores, i.bytes()}
		}
	}
	err := m.list(ctx, "nodes", func(i *metricsItem) { add(podName{"", i.Metadata.Name}, i) })
	if err == nil {
		err = m.list(ctx, "pods", func(i *metricsItem) {
			if of := i.Metadata; of.Namespace != "" && wanted(of.Namespace, of.Name) {
				add(podName{of.Namespace, of.Name}, i)
			}
		})
	}
	switch {
	case err == nil:
		return u, nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsServiceUnavailable(err):
		m.again = m.uptime() + askAgain
	}
	return nil, err
}

// metricsItem is a NodeMetrics or PodMetrics object.
type metricsItem struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp  string       `json:"timestamp"`
	Usage      metricsUsage `json:"usage"`
	Containers []struct {
		Usage metricsUsage `json:"usage"`
	} `json:"containers"`
}

type metricsUsage struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
}

// cores returns the CPU usage of an item. It returns false if the item is outdated or invalid.
func (i *metricsItem) cores(now time.Time) (float64, bool) {
	at, err := time.Parse(time.RFC3339, i.Timestamp)
	if err != nil || now.Sub(at) > usageMaxAge || at.Sub(now) > usageAhead || i.Metadata.Name == "" ||
		len(i.Containers) > maxContainers {
		return 0, false
	}
	if i.Usage.CPU != "" {
		return i.Usage.cores()
	}
	sum := 0.0
	for j := range i.Containers {
		cores, ok := i.Containers[j].Usage.cores()
		if !ok {
			return 0, false
		}
		sum += cores
	}
	return sum, len(i.Containers) > 0
}

// bytes returns the memory usage of an item, or 0 if it is missing or invalid.
func (i *metricsItem) bytes() (sum float64) {
	sum = i.Usage.bytes()
	for j := range i.Containers {
		sum += i.Containers[j].Usage.bytes()
	}
	return sum
}

// bytes returns the memory quantity, or 0 if it is missing or invalid.
func (u *metricsUsage) bytes() float64 {
	if q, err := kube.ParseQuantity(u.Memory); err == nil && q.CmpInt64(maxBytes) <= 0 {
		return q.AsApproximateFloat64()
	}
	return 0
}

const (
	maxCores = 1e6
	maxBytes = 1 << 50
)

// cores returns the CPU quantity. It returns false if the quantity is invalid.
func (u *metricsUsage) cores() (float64, bool) {
	q, err := kube.ParseQuantity(u.CPU)
	return q.AsApproximateFloat64(), err == nil && q.CmpInt64(maxCores) <= 0
}

// list calls each for every item of a list. It does not use pagination because metrics-server does not support it.
func (m *MetricsServer) list(ctx context.Context, what string, each func(*metricsItem)) error {
	body, err := m.client.Get().AbsPath(metricsPath+what).SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	items := 0
	if err := readList(http.MaxBytesReader(nil, body, maxList), func(i *metricsItem) error {
		if items++; items > maxItems {
			return fmt.Errorf("more than %d items", maxItems)
		}
		each(i)
		return nil
	}); err != nil {
		return fmt.Errorf("reading the list of %s: %w", what, err)
	}
	return nil
}

// readList decodes a list item by item and calls each for every item.
func readList(from io.Reader, each func(*metricsItem) error) error {
	s := jsonscan.NewStream(from, maxItem)
	return s.Each('{', func() error {
		switch key, err := s.Token(); {
		case err != nil:
			return err
		case key != "items":
			return s.Decode(new(json.RawMessage))
		}
		return s.Each('[', func() error {
			var i metricsItem
			if err := s.Decode(&i); err != nil {
				return err
			}
			return each(&i)
		})
	})
}
