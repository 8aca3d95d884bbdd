// Package cut cuts the network between processes of one machine, for tests.
//
// A Network has one TCP proxy per server. The addresses of the proxies take the place of those of the servers in Cell objects, kubeconfigs
// and flags, which all processes share. A proxy finds out which process has opened a connection: the kernel lists the inode of each socket
// in /proc/net/tcp, and the sockets of a process in /proc/PID/fd. So a fault can affect one process and one server, and neither the
// programs under test nor their configuration have to know. It needs no privileges, but Linux.
//
// Other ways were considered. Network namespaces and packet filters need privileges. The proxy environment variables of Go are ignored for
// loopback addresses, and by the client of etcd. A dialer that tests could override would be test code in production.
//
// A Fault behaves like the network, as far as a proxy can. Bytes that a Blackhole holds are delivered when it ends, as TCP would by sending
// them again: also the requests of a client that has given up and closed its connection. The kernel completes the TCP handshake before the
// proxy sees a connection, so connecting never times out: what times out is the TLS handshake.
package cut
