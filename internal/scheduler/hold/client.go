package hold

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A release at a deadline waits for nothing else, least of all for the process' other requests. Other releases keep to
// what the cluster keeps up with, which is why this may be as much as a large one does.
const (
	clientQPS   = 1000
	clientBurst = 2000
)

// NewClient returns a client for a [Loop], which shares its limit of requests with nothing else.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "kubenergy-hold")
	config.QPS, config.Burst, config.RateLimiter = clientQPS, clientBurst, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the hold loop's client: %w", err)
	}
	return client, nil
}
