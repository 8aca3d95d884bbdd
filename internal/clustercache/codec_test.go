package clustercache_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
}()

// decodePodList decodes a list as clients do.
func decodePodList(t interface{ Fatal(...any) }, body []byte) *corev1.PodList {
	object, err := runtime.Decode(codecs.UniversalDeserializer(), body)
	if err != nil {
		t.Fatal(err)
	}
	list, ok := object.(*corev1.PodList)
	if !ok {
		t.Fatal("not a list of pods")
	}
	return list
}
