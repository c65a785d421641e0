// Package systemd is a folder of units; its tests hold them to what systemd takes.
package systemd
