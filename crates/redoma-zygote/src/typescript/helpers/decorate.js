function decorate(decorators, target, key, descriptor) {
  const ofClass = arguments.length < 3;
  let result = ofClass ? target : descriptor === null ? Object.getOwnPropertyDescriptor(target, key) : descriptor;
  for (const decorator of decorators.reverse()) {
    result = (ofClass ? decorator(result) : decorator(target, key, result)) ?? result;
  }
  if (!ofClass && result) Object.defineProperty(target, key, result);
  return result;
}
