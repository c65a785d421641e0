package kube

import (
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// Retry tries again after errors that are worth it, as client-go does. client-go takes what ran out of time for done:
// here that is an error.
func Retry(backoff wait.Backoff, again func(error) bool, try func() error) (err error) {
	_ = retry.OnError(backoff, again, func() error {
		err = try()
		return err
	})
	return err
}
