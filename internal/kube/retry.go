package kube

import (
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// Retry calls try and retries it with backoff after each error if again returns true. Unlike retry.OnError of
// client-go, it returns an error if the time has run out.
func Retry(backoff wait.Backoff, again func(error) bool, try func() error) (err error) {
	_ = retry.OnError(backoff, again, func() error {
		err = try()
		return err
	})
	return err
}
