// Package explain shows why a pod or Job waits or was placed where it is, and lists what is held.
package explain
