// Package app is the program kubenergy-scheduler: its flags, and what builds and runs its parts.
package app
