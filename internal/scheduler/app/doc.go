// Package app implements the program kubenergy-scheduler. It defines the flags, and builds and runs the components.
package app
