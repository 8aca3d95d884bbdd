// Package atrest encrypts and decrypts values as the API servers of a cell do, by their EncryptionConfiguration and with the transformers of
// k8s.io/apiserver.
//
// A value is bound to its etcd key. What is copied to another key, or to another cell, is decrypted and encrypted again.
//
// A value that an API server cannot decrypt breaks every list of its kind. So before anything is written that an API server reads, one has
// encrypted a probe: the key of the probe is the one to write with. The configuration that was given only has to contain it.
package atrest
