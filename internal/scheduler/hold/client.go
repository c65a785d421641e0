package hold

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Releases at deadlines must not wait for other requests of the process. The other releases follow the rate at
// which the cluster starts work, so these limits can be as high as a large cluster needs.
const (
	clientQPS   = 1000
	clientBurst = 2000
)

// NewClient returns a client for a [Loop]. Its rate limiter is not shared with other clients.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "kubenergy-hold")
	config.QPS, config.Burst, config.RateLimiter = clientQPS, clientBurst, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the hold loop: %w", err)
	}
	return client, nil
}
