/* SPDX-License-Identifier: MIT
 * Foundation.h: the part of Apple's Foundation that metal_device.m calls, declared by us with
 * Apple's names, so that the call sites can be compiled without a Mac. */
/* clang-format off */
#pragma once
#include <objc/objc.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef NSUInteger NSStringEncoding;
enum { NSUTF8StringEncoding = 4 };

@protocol NSObject
@end

__attribute__((objc_root_class)) @interface NSObject <NSObject> {
    Class isa;
}
+ (instancetype)alloc;
+ (instancetype) new;
- (instancetype)init;
@end

@interface NSString : NSObject
+ (nullable instancetype)stringWithUTF8String:(const char *)s;
- (nullable instancetype)initWithBytes:(const void *)bytes
                                length:(NSUInteger)length
                              encoding:(NSStringEncoding)encoding;
@property(readonly, nullable) const char *UTF8String;
@end

@interface NSURL : NSObject
+ (NSURL *)fileURLWithPath:(NSString *)path;
@end

@interface NSArray<__covariant ObjectType> : NSObject
+ (instancetype)arrayWithObjects:(const ObjectType _Nonnull[_Nonnull])objects count:(NSUInteger)cnt;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString *localizedDescription;
@end

#pragma clang assume_nonnull end
